import { type ClaimInfo, ClaimManager, cdiDevicesOf, type DriverCalls } from '../doubles/kubelet-claims.ts';
import { driverName, namespace } from './api-server.ts';
import type { Instance } from './instance.ts';
import { Cancelled, rpc } from './rpc.ts';
import type { SimSandbox } from './sandboxes.ts';
import { Process } from './simulator.ts';
import type { Node, SimPod } from './world.ts';

const claimTimeoutMs = 45_000;
const sandboxTimeoutMs = 240_000;
const containerTimeoutMs = 120_000;
const pollMs = 1_000;
const lookMs = 10_000;

/** The kubelet, limited to pods with claims. Source of the order of its calls: `pkg/kubelet/kubelet.go`. */
export class Kubelet {
  process: Process;
  readonly #node: Node;
  readonly #claims: ClaimManager<Instance>;
  #workers = new Set<SimPod>();

  constructor(node: Node) {
    this.#node = node;
    this.process = new Process(node.simulator, 'kubelet');
    // Drivers get along with one that has forgotten claims, so it need not wait for the end of their namesakes.
    this.#claims = new ClaimManager(this.#calls(), true);
  }

  /** Whether it has finished all work on the pods. */
  get isIdle(): boolean {
    return this.#workers.size === 0 && this.#claims.claims.length === 0;
  }

  /** Starts looking after pods. */
  start(): void {
    this.#inBackground(this.#house());
  }

  /** @param isStateLost whether it forgets which claims it has prepared */
  restart(afterMs: number, isStateLost = false): void {
    const { simulator } = this.#node;
    this.process.kill();
    this.process = new Process(simulator, 'kubelet');
    this.process.stalledUntilMs = simulator.nowMs + afterMs;
    this.#workers = new Set();
    this.#claims.restart(isStateLost);
    simulator.schedule(0, this.process, 'start', () => this.start());
  }

  /** A pod was bound to the node. */
  add(pod: SimPod): void {
    const delayMs = this.#node.simulator.tape.delay(50, 2_000);
    this.#node.simulator.schedule(delayMs, this.process, `${pod.uid} is seen`, () => this.#look(pod));
  }

  #look(pod: SimPod): void {
    if (!pod.isBound || pod.isDone || this.#workers.has(pod)) return;
    this.#workers.add(pod);
    this.#inBackground(this.#work(pod));
  }

  /** Cleans up claims of pods that are gone, and sandboxes of unknown pods. */
  async #house(): Promise<void> {
    for (;;) {
      for (const pod of this.#node.pods) this.#look(pod);
      this.#inBackground(this.#cleanUp());
      await this.process.sleep(lookMs, 'look for what is left');
    }
  }

  async #cleanUp(): Promise<void> {
    const known = new Set([...this.#workers].map(({ uid }) => uid));
    for (const info of this.#claims.claims) {
      for (const pod of info.podUids) if (!known.has(pod)) info.podUids.delete(pod);
      if (info.podUids.size === 0) await this.#unprepare(info).catch(() => undefined);
    }
    const sandboxes = this.#node.runtime.list();
    for (const [index, sandbox] of sandboxes.entries()) {
      const isOld = sandbox.state === 'stopped' && sandboxes.slice(index + 1).some(({ pod }) => pod === sandbox.pod);
      if (known.has(sandbox.pod.uid) && !isOld) continue;
      await this.#stopSandbox(sandbox).catch(() => undefined);
      await this.#runtimeCall('RemovePodSandbox', containerTimeoutMs, undefined, (signal) =>
        this.#node.runtime.removePodSandbox(sandbox.id, signal),
      ).catch(() => undefined);
    }
  }

  async #work(pod: SimPod): Promise<void> {
    const { process } = this;
    for (let failures = 0; !pod.isDeleted && !pod.isFailed; ) {
      try {
        await this.#sync(pod, pod.cancel.signal);
        failures = 0;
        await process.sleep(pollMs, `look at ${pod.uid}`);
      } catch (error) {
        if (pod.isDeleted) break;
        this.#node.simulator.trace('kubelet', `${pod.uid}: ${(error as Error).message}`);
        this.#node.liveness.kubeletFailed(pod, error as Error);
        await process.sleep(Math.min(1_000 * 2 ** failures++, 10_000), `back off for ${pod.uid}`);
      }
    }
    await this.#terminate(pod);
  }

  async #sync(pod: SimPod, signal: AbortSignal): Promise<void> {
    const { runtime } = this.#node;
    const own = runtime.list().filter((sandbox) => sandbox.pod === pod);
    const current = own.findLast(({ state }) => state === 'ready');
    const containers = current === undefined ? [] : runtime.containersOf(current);
    if (containers.some(({ state }) => state === 'running')) {
      // A kubelet that has just started also prepares the claims of running pods.
      await this.#prepare(pod, signal);
      return;
    }
    const last = containers.at(-1);
    if (last?.state === 'exited' && pod.restartPolicy === 'Never' && last.reason !== 'killed') {
      pod.isFailed = true;
      this.#node.onPodFailed(pod, last);
      return;
    }
    const ids = await this.#prepare(pod, signal);
    for (const sandbox of own) if (sandbox !== current) await this.#stopSandbox(sandbox);
    const sandboxId =
      current?.id ??
      (await this.#runtimeCall(`RunPodSandbox of ${pod.uid}`, sandboxTimeoutMs, signal, (ended) =>
        runtime.runPodSandbox(pod, ended),
      ));
    const id = await this.#runtimeCall('CreateContainer', containerTimeoutMs, signal, (ended) =>
      runtime.createContainer(sandboxId, ids, ended),
    );
    await this.#runtimeCall('StartContainer', containerTimeoutMs, signal, (ended) => runtime.startContainer(id, ended));
  }

  async #terminate(pod: SimPod): Promise<void> {
    const { process } = this;
    const { runtime } = this.#node;
    for (let failures = 0; ; failures++) {
      try {
        for (const sandbox of runtime.list().filter((each) => each.pod === pod)) {
          for (const container of runtime.containersOf(sandbox)) runtime.stopContainer(container, 'killed');
          if (sandbox.state === 'ready') await this.#stopSandbox(sandbox);
        }
        for (const info of this.#claims.claims) {
          info.podUids.delete(pod.uid);
          if (info.podUids.size === 0) await this.#unprepare(info);
        }
        break;
      } catch (error) {
        this.#node.simulator.trace('kubelet', `end of ${pod.uid}: ${(error as Error).message}`);
        await process.sleep(Math.min(1_000 * 2 ** failures, 10_000), `back off for the end of ${pod.uid}`);
      }
    }
    if (pod.isFailed && !pod.isDeleted) {
      this.#node.releaseClaims(pod);
      while (!pod.isDeleted) await process.sleep(pollMs, `wait for the deletion of ${pod.uid}`);
    }
    this.#node.remove(pod);
    for (const sandbox of runtime.list().filter((each) => each.pod === pod)) {
      await this.#runtimeCall('RemovePodSandbox', containerTimeoutMs, undefined, (signal) =>
        runtime.removePodSandbox(sandbox.id, signal),
      ).catch(() => undefined);
    }
    pod.isDone = true;
    this.#workers.delete(pod);
  }

  /** @returns CDI ids */
  async #prepare(pod: SimPod, signal: AbortSignal): Promise<string[]> {
    const claims = this.#node.claimsOf(pod);
    for (const claim of claims) {
      if (!claim.reservedFor.includes(pod.uid)) throw new Error(`claim ${claim.name} is not reserved for ${pod.uid}`);
    }
    const needed = claims.map(({ uid, name }) => ({ uid, name, namespace, drivers: [driverName] }));
    const infos = await this.#claims.prepare(pod.uid, needed, signal);
    return infos.flatMap((info) => cdiDevicesOf(info, undefined));
  }

  /** One at a time: others may have ended it meanwhile. */
  async #unprepare(info: ClaimInfo): Promise<void> {
    if (this.#claims.claims.includes(info)) await this.#claims.unprepare([info]);
  }

  #calls(): DriverCalls<Instance> {
    const { simulator } = this.#node;
    const timeoutMs = claimTimeoutMs;
    return {
      find: () => {
        const instance = this.#node.registered();
        if (instance === undefined) throw new Error('the plugin is not registered');
        return instance;
      },
      prepare: (instance, claims, { podUid, signal }) =>
        rpc(simulator, {
          from: this.process,
          to: instance.process,
          what: `NodePrepareResources for ${podUid}`,
          timeoutMs,
          ...(signal === undefined ? {} : { signal }),
          handle: (ended) => instance.call((calls) => calls.nodePrepareResources(claims, { timeoutMs, signal: ended })),
        }),
      unprepare: (instance, claims) =>
        rpc(simulator, {
          from: this.process,
          to: instance.process,
          what: `NodeUnprepareResources of ${claims.map(({ name }) => name)}`,
          timeoutMs,
          handle: (ended) =>
            instance.call((calls) => calls.nodeUnprepareResources(claims, { timeoutMs, signal: ended })),
        }),
    };
  }

  async #stopSandbox({ id }: SimSandbox): Promise<void> {
    await this.#runtimeCall(`StopPodSandbox ${id}`, containerTimeoutMs, undefined, (signal) =>
      this.#node.runtime.stopPodSandbox(id, signal),
    );
  }

  async #runtimeCall<T>(
    what: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    handle: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { simulator, runtime } = this.#node;
    const ending = signal === undefined ? {} : { signal };
    return await rpc(simulator, { from: this.process, to: runtime.process, what, timeoutMs, handle, ...ending });
  }

  #inBackground(work: Promise<void>): void {
    work.catch((error: unknown) => {
      if (!(error instanceof Cancelled)) this.#node.onSurprise(error);
    });
  }
}
