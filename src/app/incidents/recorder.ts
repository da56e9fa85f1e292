import type { PluginHandlers } from '../../../nri/index.ts';
import type { NodePorts } from '../../driver/ports.ts';
import type { Attachment, Store, StoredClaim, UnrestoredVf } from '../../driver/state/index.ts';
import { failureOf } from '../../framework/kubeletplugin/driver-answers.ts';
import type { DraPlugin } from '../../framework/kubeletplugin/plugin.ts';
import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import { intercept } from '../../lib/intercept.ts';
import { aroundPorts, type PortCall } from './around-ports.ts';
import type { Incident, IncidentReason } from './entry.ts';
import { claimFacts, containerFacts, deviceFacts, errorFacts, isOrdinary, sandboxFacts } from './facts.ts';
import type { IncidentRing } from './incident-ring.ts';
import { LivePods } from './live-pods.ts';

/** A call that takes longer is an entry although it succeeds. */
const slowMs = 250;

export interface RecorderOptions {
  ring: IncidentRing;
  driverName: string;
  clock: Clock;
  /** Called at once, perhaps in the middle of a call. @param what for people */
  onIncident: (reason: IncidentReason, what: string) => void;
}

/**
 * Records what crosses the ports of a driver: what the kubelet and the runtime ask of it, how its own calls fail, and what it
 * changes. The driver knows nothing of it.
 */
export class Recorder {
  readonly #options: RecorderOptions;
  readonly #startMs: number;
  readonly #pods = new LivePods();
  /** UIDs of claims about which the driver repeats a call by itself. */
  readonly #ownCalls = new Set<string>();
  #calls = 0;
  #hung = 0;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#startMs = options.clock.nowMs();
  }

  /** The same ports, of which everything is recorded from now on. @throws StateError */
  record(ports: NodePorts): NodePorts {
    const { ring } = this.#options;
    this.#begin(ports.disk.store);
    const { runtime, kubelet, observer, kernel, ...rest } = aroundPorts(ports, (call) => this.#portCalled(call));
    return {
      ...rest,
      kernel: {
        ...kernel,
        watchHost: (onChange) =>
          kernel.watchHost(() => {
            if (ring.last?.is !== 'host changed') this.#add({ is: 'host changed' });
            onChange();
          }),
      },
      kubelet: { serve: (plugin, options) => kubelet.serve(this.#plugin(plugin), options) },
      runtime: { connect: (handlers) => runtime.connect(this.#handlers(handlers)) },
      observer: {
        ...observer,
        reported: (state) => {
          this.#hangs(state.hungWrites.map(({ device }) => device));
          observer.reported(state);
        },
      },
    };
  }

  #add(entry: Incident, atMs = this.#options.clock.nowMs()): void {
    this.#options.ring.add({ atMs: Math.round(atMs - this.#startMs), ...entry });
  }

  /** What the store holds when the driver starts. */
  #begin(store: Store): void {
    for (const { identity, podUids, state, devices } of store.claims()) {
      const configured = devices.map((device) => {
        const { request, config } = device;
        return { ...deviceFacts(device), request, config };
      });
      this.#add({ is: 'stored', claim: identity, podUids, state, devices: configured });
      for (const { pciAddress, attachment } of devices) {
        if (attachment !== undefined) this.#placed(identity.uid, pciAddress, attachment);
      }
    }
  }

  #portCalled(call: PortCall): unknown {
    const { port, args } = call;
    const name = String(call.name);
    const { clock } = this.#options;
    const startedAtMs = clock.nowMs();
    const ended = (isFailed: boolean, result: unknown) => {
      if (!isFailed) this.#succeeded(call, result);
      const ms = Math.round(clock.nowMs() - startedAtMs);
      if (isFailed ? isOrdinary(result, args) : ms < slowMs) return;
      const facts = isFailed ? errorFacts(result) : {};
      this.#add({ is: isFailed ? 'failure' : 'slow', port, what: name, on: call.on(), ms, ...facts }, startedAtMs);
    };
    try {
      const result = isOwnCall(call) ? this.#own(call.args[0], call.next) : call.next();
      if (!(result instanceof Promise)) {
        ended(false, result);
        return result;
      }
      result.then(
        (value: unknown) => ended(false, value),
        (error: unknown) => ended(true, error),
      );
      return result;
    } catch (error) {
      ended(true, error);
      throw error;
    }
  }

  /** Marks what the plugin is asked for meanwhile. */
  async #own<T>({ uid }: ClaimIdentity, task: () => Promise<T>): Promise<T> {
    this.#ownCalls.add(uid);
    return await task().finally(() => this.#ownCalls.delete(uid));
  }

  /** Calls that change something are entries of their own. */
  #succeeded(call: PortCall, result: unknown): void {
    if (call.port === 'store') this.#storeChanged(call);
    if (call.port === 'files') this.#filesChanged(call, result);
    if ((call.port === 'host' || call.port === 'pod') && call.name === 'setLink') {
      const [index, { netns }] = call.args;
      if (netns !== undefined) this.#add({ is: 'moved', from: call.on(), to: `${netns.path ?? 'host'}`, index });
    }
  }

  #storeChanged(call: PortCall & { port: 'store' }): void {
    if (call.name === 'putClaim') this.#stored(call.args[0]);
    if (call.name === 'setAttachments') {
      const [claimUid, changes] = call.args;
      for (const [pciAddress, attachment] of changes) this.#placed(claimUid, pciAddress, attachment);
    }
    if (call.name === 'putUnrestored') this.#unrestored(call.args[0]);
    if (call.name === 'deleteClaim') {
      const [claimUid, unrestored = []] = call.args;
      this.#pods.forget(claimUid);
      this.#add({ is: 'deleted', claimUid });
      for (const vf of unrestored) this.#unrestored(vf);
    }
  }

  #stored({ identity, podUids, state, devices }: StoredClaim): void {
    this.#add({ is: 'stored', claim: identity, podUids, state, devices: devices.map(deviceFacts) });
  }

  #placed(claimUid: string, pciAddress: string, { sandboxId, host }: Partial<Attachment> = {}): void {
    const livesIn = this.#pods.move(claimUid, sandboxId);
    this.#add({ is: 'placed', claimUid, pciAddress, sandboxId, ...defined({ host }) });
    if (sandboxId !== undefined || livesIn === undefined) return;
    const what = `${pciAddress} of claim ${claimUid} leaves sandbox ${livesIn}, which lives`;
    this.#options.onIncident('vf-taken-back', what);
  }

  #unrestored({ device, reason }: UnrestoredVf): void {
    this.#add({ is: 'unrestored', device: deviceFacts(device), why: reason });
    this.#options.onIncident('vf-not-restored', `${device.name}: ${reason}`);
  }

  #filesChanged(call: PortCall & { port: 'files' }, result: unknown): void {
    const add = (claim: ClaimIdentity, on: string) => this.#add({ is: 'file', what: String(call.name), claim, on });
    switch (call.name) {
      case 'updateRequestMetadata':
        if ((result as { isWritten: boolean }).isWritten) add(call.args[0], call.args[1]);
        break;
      case 'openGate':
        // It is repeated at each reconciliation.
        if ([...(result as ReadonlyMap<string, { isWritten: boolean }>).values()].some(({ isWritten }) => isWritten))
          add(call.args[0], call.args[1]);
        break;
      case 'holdGate':
      case 'endGate':
        add(call.args[0], call.args[1]);
        break;
      case 'withdrawMetadata': {
        const [claim, requests = []] = call.args;
        add(claim, requests.join());
        const livesIn = this.#pods.of(claim.uid);
        if (livesIn === undefined) return;
        const what = `the metadata of claim ${claim.namespace}/${claim.name} is withdrawn from sandbox ${livesIn}, which lives`;
        this.#options.onIncident('vf-taken-back', what);
      }
    }
  }

  #hangs(devices: string[]): void {
    if (devices.length > this.#hung) {
      this.#add({ is: 'hung', devices });
      this.#options.onIncident('device-hung', `the kernel does not return from a write for ${devices.join(', ')}`);
    }
    this.#hung = devices.length;
  }

  #plugin(plugin: DraPlugin): DraPlugin {
    return intercept(plugin, async (made) => {
      const call = ++this.#calls;
      const ownOf = (claims: readonly ClaimIdentity[]) =>
        claims.every(({ uid }) => this.#ownCalls.has(uid)) ? { isOwn: true as const } : {};
      const failed = (results: ReadonlyMap<string, Parameters<typeof failureOf>[0]>) => {
        const errors = [...results].map(([uid, result]) => [uid, failureOf(result)] as const);
        return Object.fromEntries(
          errors.flatMap(([uid, error]) => (error === undefined ? [] : [[uid, explain(error)]])),
        );
      };
      if (made.name === 'unprepareResourceClaims') {
        const [claims] = made.args;
        this.#add({ is: 'unprepare', call, claims, ...ownOf(claims) });
        return await this.#answer(call, 'claim-not-unprepared', made.next, failed);
      }
      const claims = made.args[0].map((claim) => claimFacts(claim, this.#options.driverName));
      this.#add({ is: 'prepare', call, claims, ...ownOf(claims) });
      return await this.#answer(call, 'claim-refused', made.next, failed);
    });
  }

  /** @param failures what an answer says of single claims, by UID */
  async #answer<T>(
    call: number,
    reason: IncidentReason,
    task: () => T | Promise<T>,
    failures: (answer: T) => Record<string, string> = () => ({}),
  ): Promise<T> {
    const { clock, onIncident } = this.#options;
    const startedAtMs = clock.nowMs();
    const end = (failed: Record<string, string>) => {
      const [text] = Object.values(failed);
      const ms = Math.round(clock.nowMs() - startedAtMs);
      this.#add({ is: 'answer', call, ms, ...(text === undefined ? {} : { failed }) });
      if (text !== undefined) onIncident(reason, text);
    };
    try {
      const answer = await task();
      end(failures(answer));
      return answer;
    } catch (error) {
      end({ '': explain(error) });
      throw error;
    }
  }

  #handlers(handlers: PluginHandlers): PluginHandlers {
    return intercept(handlers, (made) => {
      const call = ++this.#calls;
      switch (made.name) {
        case 'synchronize': {
          const sandboxes = made.args[0].map(sandboxFacts);
          this.#pods.list(sandboxes.map(({ id }) => id));
          this.#add({ is: made.name, call, sandboxes, containers: made.args[1].map(containerFacts) });
          return made.next();
        }
        case 'createContainer': {
          const [pod, container] = made.args;
          this.#pods.add(pod.id);
          this.#add({ is: made.name, call, sandbox: sandboxFacts(pod), container: containerFacts(container) });
          return this.#answer(call, 'container-refused', made.next);
        }
        case 'runPodSandbox':
        case 'stopPodSandbox':
        case 'removePodSandbox': {
          const sandbox = sandboxFacts(made.args[0]);
          if (made.name === 'runPodSandbox') this.#pods.add(sandbox.id);
          else this.#pods.end(sandbox.id);
          this.#add({ is: made.name, call, sandbox });
          return this.#answer(call, 'sandbox-refused', made.next);
        }
        case 'connected':
          this.#add({ is: 'connected', runtime: made.args[0].name });
          break;
        case 'disconnected':
          this.#pods.list([]);
          this.#add({ is: 'disconnected' });
      }
      return made.next();
    });
  }
}

type OwnCall = PortCall & { port: 'files'; name: 'prepareAgain' | 'reclaim'; next: () => Promise<boolean> };

function isOwnCall(call: PortCall): call is OwnCall {
  return call.port === 'files' && (call.name === 'prepareAgain' || call.name === 'reclaim');
}
