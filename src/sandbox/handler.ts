import type { CallContext, Container, PluginHandlers, PodSandbox, RuntimeInfo } from '../../nri/index.ts';
import type { Clock } from '../clock.ts';
import { isUserSpace, type Store, type StoredClaim } from '../driver/index.ts';
import { explain } from '../errors.ts';
import type { KeyedMutex } from '../keyed-mutex.ts';
import type { Logger } from '../logger.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import type { NetnsHandle } from '../netlink/index.ts';
import { ContainerGuard } from './container-guard.ts';
import { SandboxError } from './errors.ts';
import { type HookFailure, type HookFailureMode, resolveHookFailure } from './hook-failure.ts';
import type { LiveUpdates } from './live-updates.ts';
import type { MetadataWriter, ServedDevice } from './metadata-writer.ts';
import { isServed } from './place.ts';
import { netnsPathOf, openPodNetns } from './pod-netns.ts';
import type { OnStep } from './steps.ts';
import type { VfMover } from './vf-mover.ts';

/** The part of the runtime's deadline that the hook may use: past it containerd goes on as if all were well. */
const budgetShare = 0.75;
const retryMs = { first: 500, last: 5_000 };
/** How long addresses that the kernel still checks are looked at after the hook: duplicate detection takes 1 to 3 s. */
const tentativeMs = { every: 500, total: 5_000 };

export interface SandboxHandlerOptions {
  store: Store;
  mover: VfMover;
  writer: MetadataWriter;
  /** Hides a claim's files from containers that have not started yet. */
  withdraw: (claim: ClaimIdentity) => Promise<void>;
  /** Whether a path on the host is a metadata file of a claim. */
  isFileOf: (claim: ClaimIdentity, path: string) => boolean;
  /** Shared with the driver: one task at a time on the VFs of a claim. */
  claimMutex: KeyedMutex;
  hookFailure: HookFailureMode;
  /** Told why a claim's VFs are not in their pod; it is tried again. */
  onFailure?: (claim: ClaimIdentity, reason: string) => void;
  /** Follows changes in running pods. Absent: switched off. */
  live?: LiveUpdates;
  clock: Clock;
  logger: Logger;
  onStep: OnStep;
}

/**
 * What happens in a pod's sandbox. All hooks are idempotent, may come in any order and for sandboxes that were never
 * seen, and answer before the runtime's own deadline: facts of NRI, see nri/README.md.
 */
export class SandboxHandler implements PluginHandlers, AsyncDisposable {
  readonly #options: SandboxHandlerOptions;
  readonly #stop = new AbortController();
  /** By sandbox id: work that goes on after its hook was answered. */
  readonly #background = new Map<string, { abort: AbortController; done: Promise<void> }>();
  /** By sandbox id: why it was not served at its last try. */
  readonly #reasons = new Map<string, string>();
  readonly #writer: MetadataWriter;
  readonly #guard: ContainerGuard;
  #failure: HookFailure = 'reject';

  constructor(options: SandboxHandlerOptions) {
    this.#options = options;
    this.#writer = options.writer;
    const { store, isFileOf } = options;
    this.#guard = new ContainerGuard({ store, isFileOf, reasonOf: (sandboxId) => this.#reasons.get(sandboxId) });
  }

  configure(runtime: RuntimeInfo): void {
    this.#failure = resolveHookFailure(this.#options.hookFailure, runtime);
    const { name, version } = runtime;
    this.#options.logger.info({ runtime: name, version, hookFailure: this.#failure }, 'connected to the runtime');
  }

  /** Pods whose hook we missed, while we were away or before, get what they lack. */
  synchronize(pods: PodSandbox[]): void {
    for (const pod of pods) {
      const open = this.#claims(pod).some(({ devices }) => devices.some((device) => !isServed(device, pod)));
      if (netnsPathOf(pod) === undefined) continue;
      if (open) this.#inBackground(pod, undefined);
      else this.#follow(pod);
    }
  }

  async runPodSandbox(pod: PodSandbox, { timeoutMs }: CallContext): Promise<void> {
    const claims = this.#claims(pod);
    if (claims.length === 0) return;
    const { clock, logger } = this.#options;
    const log = { pod: `${pod.namespace}/${pod.name}`, podUid: pod.uid, sandbox: pod.id };
    const startedAt = clock.nowMs();
    await this.#withdrawStale(claims, pod);
    const abort = new AbortController();
    const work = this.#serve(pod, abort.signal);
    try {
      await withinBudget(work, clock, Math.floor(budgetShare * timeoutMs), pod);
      logger.info({ ...log, ms: Math.round(clock.nowMs() - startedAt) }, 'sandbox served');
    } catch (error) {
      const answer = this.#answerTo(error, claims);
      logger.error({ ...log, err: error, answer }, 'sandbox not served');
      this.#noteFailure(pod, error);
      if (answer === 'reject') {
        abort.abort(error);
        throw new Error(`netdra: ${explain(error)}`, { cause: error });
      }
      this.#inBackground(pod, work);
    }
  }

  async stopPodSandbox(pod: PodSandbox, { timeoutMs }: CallContext): Promise<void> {
    this.#background.get(pod.id)?.abort.abort();
    this.#reasons.delete(pod.id);
    this.#options.live?.stop(pod.id);
    const { clock, logger } = this.#options;
    try {
      await withinBudget(this.#giveBack(pod), clock, Math.floor(budgetShare * timeoutMs), pod);
    } catch (error) {
      // Best effort: CRI-O would refuse to stop the pod. Unprepare does the same work again.
      logger.warn({ pod: `${pod.namespace}/${pod.name}`, sandbox: pod.id, err: error }, 'VFs not given back at stop');
    }
  }

  /** A container must not start with what an earlier sandbox had, nor fail without a word of why. */
  createContainer(pod: PodSandbox, container: Container): void {
    this.#guard.check(pod, container);
  }

  /** After a failure containerd sends this without a stop before it. */
  async removePodSandbox(pod: PodSandbox, context: CallContext): Promise<void> {
    await this.stopPodSandbox(pod, context);
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await Promise.all([...this.#background.values()].map(({ done }) => done));
  }

  #claims(pod: PodSandbox): StoredClaim[] {
    return this.#options.store.claimsOfPod(pod.uid).filter(({ state }) => state === 'prepared');
  }

  /**
   * CNI plugins may take longer than any hook, with duplicate address detection for one, and would be as slow in the next
   * sandbox: rejecting this one would never end.
   */
  #answerTo(error: unknown, claims: StoredClaim[]): HookFailure {
    const isLate = error instanceof SandboxError && error.code === 'hook-timeout';
    const usesCni = claims.some(({ devices }) => devices.some(({ config }) => config.attach === 'cni' || config.ipam));
    return isLate && usesCni ? 'gate' : this.#failure;
  }

  /** Attaches all VFs of the pod and writes the metadata of all requests. */
  async #serve(pod: PodSandbox, signal: AbortSignal): Promise<void> {
    await this.#options.onStep('hook-started', { pod: pod.uid });
    using netns = openPodNetns(pod);
    for (const { identity } of this.#claims(pod)) {
      await this.#options.claimMutex.run(identity.uid, () => this.#serveClaim(pod, identity, netns, signal));
    }
    this.#watch(pod);
  }

  /** From now on changes of the pod's VFs are followed, if there are any that have an interface. */
  #watch(pod: PodSandbox): void {
    const devices = this.#claims(pod).flatMap((claim) => claim.devices);
    if (devices.some((device) => !isUserSpace(device)))
      this.#options.live?.start(pod, (changed) => this.#refresh(changed));
  }

  /** For a pod that was served before we were started: what changed meanwhile is looked up. */
  #follow(pod: PodSandbox): void {
    if (this.#claims(pod).length === 0 || this.#options.live === undefined) return;
    this.#startBackground(pod, pod.id, async () => {
      this.#watch(pod);
      await this.#refresh(pod);
    });
  }

  /** Reads the pod's VFs again, as far as they have interfaces in it, and writes what changed. */
  async #refresh(pod: PodSandbox): Promise<void> {
    const { claimMutex } = this.#options;
    for (const { identity } of this.#claims(pod)) {
      await claimMutex.run(
        identity.uid,
        async () => await this.#writer.write(identity, await this.#writer.readAgain(pod, identity)),
      );
    }
  }

  async #serveClaim(pod: PodSandbox, identity: ClaimIdentity, netns: NetnsHandle, signal: AbortSignal): Promise<void> {
    const { store, mover } = this.#options;
    const { uid: podUid, namespace: podNamespace, name: podName, id: sandboxId } = pod;
    const place = { podUid, podNamespace, podName, sandboxId, netnsPath: netns.path };
    const served: ServedDevice[] = [];
    for (const device of store.claim(identity.uid)?.devices ?? []) {
      const state = await mover.attach(device, place, netns, signal);
      served.push({ request: device.request, device, state });
    }
    await this.#writer.write(identity, served);
    if (served.some(({ state }) => state.tentative)) this.#followTentative(pod, identity);
  }

  /** Addresses that were still tentative at the hook follow as an update. */
  #followTentative(pod: PodSandbox, identity: ClaimIdentity): void {
    const { clock, claimMutex } = this.#options;
    const endsAt = clock.nowMs() + tentativeMs.total;
    const look = async (signal: AbortSignal): Promise<boolean> => {
      await clock.sleep(tentativeMs.every, signal);
      return await claimMutex.run(identity.uid, async () => {
        const served = await this.#writer.readAgain(pod, identity);
        if (served.some(({ state }) => state.tentative) && clock.nowMs() < endsAt) return false;
        await this.#writer.write(identity, served);
        return true;
      });
    };
    this.#startBackground(pod, `${pod.id} ${identity.uid}`, async (signal) => {
      while (!(await look(signal)));
    });
  }

  /** Tries again until the pod is served or stopped. `first` is an attempt that is still under way. */
  #inBackground(pod: PodSandbox, first: Promise<void> | undefined): void {
    const { clock, logger } = this.#options;
    this.#startBackground(pod, pod.id, async (signal) => {
      const log = { pod: `${pod.namespace}/${pod.name}`, sandbox: pod.id };
      let attempt =
        first?.catch(() => clock.sleep(retryMs.first, signal).then(() => this.#serve(pod, signal))) ??
        this.#serve(pod, signal);
      for (let pauseMs = retryMs.first; ; pauseMs = Math.min(2 * pauseMs, retryMs.last)) {
        try {
          await attempt;
          this.#reasons.delete(pod.id);
          logger.info(log, 'sandbox served after its hook');
          return;
        } catch (error) {
          signal.throwIfAborted();
          this.#noteFailure(pod, error);
          logger.warn({ ...log, err: error, retryMs: pauseMs }, 'sandbox still not served');
        }
        await clock.sleep(pauseMs, signal);
        attempt = this.#serve(pod, signal);
      }
    });
  }

  #noteFailure(pod: PodSandbox, error: unknown): void {
    const reason = explain(error);
    this.#reasons.set(pod.id, reason);
    const open = this.#claims(pod).filter(({ devices }) => devices.some((device) => !isServed(device, pod)));
    for (const { identity } of open) this.#options.onFailure?.(identity, reason);
  }

  #startBackground(pod: PodSandbox, key: string, task: (signal: AbortSignal) => Promise<void>): void {
    if (this.#background.has(key) || this.#stop.signal.aborted) return;
    const abort = new AbortController();
    const signal = AbortSignal.any([abort.signal, this.#stop.signal]);
    const done = task(signal)
      .catch((error) => {
        if (signal.aborted) return;
        this.#options.logger.error({ pod: `${pod.namespace}/${pod.name}`, err: error }, 'work after the hook failed');
      })
      .finally(() => this.#background.delete(key));
    this.#background.set(key, { abort, done });
  }

  /** A file from an earlier sandbox of the pod would let its containers start with what is over. */
  async #withdrawStale(claims: StoredClaim[], pod: PodSandbox): Promise<void> {
    for (const { identity, devices } of claims) {
      const stale = devices.some(({ attachment }) => attachment !== undefined && attachment.sandboxId !== pod.id);
      if (stale) await this.#options.withdraw(identity);
    }
  }

  async #giveBack(pod: PodSandbox): Promise<void> {
    const { store, claimMutex, mover, withdraw } = this.#options;
    for (const { identity } of store.claimsOfPod(pod.uid)) {
      await claimMutex.run(identity.uid, async () => {
        const devices = store.claim(identity.uid)?.devices ?? [];
        const here = devices.filter(({ attachment }) => attachment?.sandboxId === pod.id);
        for (const device of here) await mover.release(device);
        if (here.length > 0) await withdraw(identity);
      });
    }
  }
}

/** Waits for the work as long as the hook may take. The work itself goes on; its failure is never unhandled. */
async function withinBudget(work: Promise<void>, clock: Clock, budgetMs: number, pod: PodSandbox): Promise<void> {
  work.catch(() => undefined);
  using deadline = clock.deadline(budgetMs);
  await Promise.race([
    work,
    new Promise<never>((_, reject) => {
      deadline.signal.addEventListener('abort', () =>
        reject(
          new SandboxError('hook-timeout', `pod ${pod.namespace}/${pod.name} was not served within ${budgetMs} ms`, {
            retriable: true,
          }),
        ),
      );
    }),
  ]);
}
