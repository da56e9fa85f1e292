import { existsSync } from 'node:fs';
import type { CallContext, Container, PluginHandlers, PodSandbox, RuntimeInfo } from '../../nri/index.ts';
import type { Clock } from '../clock.ts';
import { isUserSpace, type Store, type StoredClaim, type StoredDevice } from '../driver/index.ts';
import { explain } from '../errors.ts';
import type { KeyedMutex } from '../keyed-mutex.ts';
import type { Logger } from '../logger.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import { type NetnsHandle, RtnlConnection } from '../netlink/index.ts';
import { BackgroundWork } from './background-work.ts';
import { ContainerGuard } from './container-guard.ts';
import { SandboxError } from './errors.ts';
import { type HookFailure, type HookFailureMode, resolveHookFailure } from './hook-failure.ts';
import { KnownSandboxes } from './known-sandboxes.ts';
import { createLeaveSandbox, type LeaveSandbox } from './leave-sandbox.ts';
import type { LiveUpdates } from './live-updates.ts';
import type { MetadataWriter, ServedDevice } from './metadata-writer.ts';
import { isServed } from './place.ts';
import { netnsPathOf, openPodNetns } from './pod-netns.ts';
import { Refusals } from './refusals.ts';
import type { OnStep } from './steps.ts';
import { StrayAttachments } from './stray-attachments.ts';
import { isObserved, type VfMover } from './vf-mover.ts';
import { withinBudget } from './within-budget.ts';

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
  /** Whether a path on the host could be a metadata file, of whatever claim. */
  isFilePlace: (path: string) => boolean;
  /** Whether it is a metadata file of a claim. */
  isFileOf: (claim: ClaimIdentity, path: string) => boolean;
  /**
   * Makes a VF that is not in its pod once more what its claim wants: its PF may have been reset since it was prepared.
   * Cheap when nothing has changed.
   */
  assure?: (claim: StoredClaim, device: StoredDevice) => Promise<void>;
  /** Called when a container waits for a claim that is prepared for another pod. */
  onOtherPod?: () => void;
  /** Told after the runtime has said which sandboxes there are. */
  onSynchronized?: () => void;
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
  /** What the runtime has. */
  readonly known = new KnownSandboxes();
  readonly #strays: StrayAttachments;
  readonly #leave: LeaveSandbox;
  readonly #refusals = new Refusals();
  /** Sandboxes whose metadata we have written, or found to be right, since we started. */
  readonly #told = new Set<string>();
  /** By sandbox id: bringing its VFs back. */
  readonly #leaving = new Map<string, Promise<void>>();
  /** Sandboxes whose hook is under way. */
  readonly #inHook = new Set<string>();
  readonly #background: BackgroundWork;
  /** By sandbox id: why it was not served at its last try. */
  readonly #reasons = new Map<string, string>();
  readonly #writer: MetadataWriter;
  readonly #guard: ContainerGuard;
  #failure: HookFailure = 'reject';

  constructor(options: SandboxHandlerOptions) {
    this.#options = options;
    this.#writer = options.writer;
    const { store, isFilePlace, isFileOf, mover, withdraw, claimMutex, logger } = options;
    this.#background = new BackgroundWork(logger);
    this.#leave = createLeaveSandbox({ store, carrier: mover, withdraw });
    this.#strays = new StrayAttachments({ store, known: this.known, leave: this.#leave, claimMutex, logger });
    this.#guard = new ContainerGuard({
      store,
      isFilePlace,
      isFileOf,
      exists: existsSync,
      reasonOf: (sandboxId) => this.#reasons.get(sandboxId),
      onOtherPod: () => options.onOtherPod?.(),
    });
  }

  configure(runtime: RuntimeInfo): void {
    this.#failure = resolveHookFailure(this.#options.hookFailure, runtime);
    const { name, version } = runtime;
    this.#options.logger.info({ runtime: name, version, hookFailure: this.#failure }, 'connected to the runtime');
  }

  /** Pods whose hook we missed, while we were away or before, get what they lack. */
  synchronize(pods: PodSandbox[]): void {
    this.known.replace(pods);
    for (const pod of pods) this.#makeUp(pod);
    this.#options.onSynchronized?.();
  }

  /** What the runtime told is not to be relied upon until it is connected again. */
  disconnected(): void {
    this.known.expire();
  }

  /**
   * Looks whether all is as it should be: pods that the runtime has and that lack something get it, VFs come back from
   * sandboxes that it has not. To be called now and then.
   */
  async reconcile(signal: AbortSignal): Promise<void> {
    this.known.prune();
    for (const id of [...this.#told, ...this.#reasons.keys()]) if (!this.known.has(id)) this.#forget(id);
    for (const pod of this.known.all()) this.#makeUp(pod);
    await this.#strays.sweep(signal);
  }

  async runPodSandbox(pod: PodSandbox, { timeoutMs }: CallContext): Promise<void> {
    this.#takeOver(pod);
    const { clock, logger } = this.#options;
    const log = { pod: `${pod.namespace}/${pod.name}`, podUid: pod.uid, sandbox: pod.id };
    const claims = this.#claimsOrNone(pod, log);
    if (claims.length === 0) return;
    const startedAt = clock.nowMs();
    const abort = new AbortController();
    this.#inHook.add(pod.id);
    const work = this.#withdrawStale(claims, pod).then(() => this.#serve(pod, abort.signal, claims));
    try {
      await withinBudget(work, clock, Math.floor(budgetShare * timeoutMs), pod);
      this.#refusals.forget(pod.uid);
      const ms = Math.round(clock.nowMs() - startedAt);
      setImmediate(() => logger.info({ ...log, ms }, 'sandbox served'));
    } catch (error) {
      const answer = this.#refusals.answer(pod.uid, this.#answerTo(error, claims));
      logger.error({ ...log, err: error, answer }, 'sandbox not served');
      this.#noteFailure(pod, error);
      if (answer === 'reject') {
        abort.abort(error);
        throw new Error(`netdra: ${explain(error)}`, { cause: error });
      }
      this.#inBackground(pod, { work, abort });
    } finally {
      this.#inHook.delete(pod.id);
    }
  }

  async stopPodSandbox(pod: PodSandbox, { timeoutMs }: CallContext): Promise<void> {
    this.known.delete(pod.id);
    this.#background.stop(pod.id);
    this.#forget(pod.id);
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
    // Its hook was missed: made while we were away, or connecting, when some runtimes tell of a sandbox in neither way.
    if (this.known.currentOf(pod.uid) !== pod.id) {
      this.#takeOver(pod);
      if (this.#claimsOrNone(pod, { pod: `${pod.namespace}/${pod.name}`, sandbox: pod.id }).length > 0)
        this.#makeUp(pod);
    }
    this.#guard.check(pod, container);
  }

  /** After a failure containerd sends this without a stop before it. */
  async removePodSandbox(pod: PodSandbox, context: CallContext): Promise<void> {
    await this.stopPodSandbox(pod, context);
  }

  async [Symbol.asyncDispose]() {
    await this.#background[Symbol.asyncDispose]();
  }

  #forget(sandboxId: string): void {
    this.#told.delete(sandboxId);
    this.#reasons.delete(sandboxId);
  }

  /** The pod lives in this sandbox from now on, and nothing is done for another one of it any more. */
  #takeOver(pod: PodSandbox): void {
    this.known.add(pod);
    for (const id of this.known.makeCurrent(pod)) this.#background.stop(id);
  }

  #isOver(pod: PodSandbox): boolean {
    const attachments = () => this.#claims(pod).flatMap(({ devices }) => devices.flatMap((d) => d.attachment ?? []));
    return this.known.livesElsewhere(pod, attachments);
  }

  #makeUp(pod: PodSandbox): void {
    if (netnsPathOf(pod) === undefined || this.#inHook.has(pod.id) || this.#isOver(pod)) return;
    const isOpen = this.#claims(pod).some(({ devices }) => devices.some((device) => !isServed(device, pod)));
    if (isOpen) this.#inBackground(pod);
    else this.#follow(pod);
  }

  /**
   * A store that cannot be read must not stop the pods of the whole node. One that has claims of ours goes on too, but
   * none of its containers that mount metadata does: see `createContainer`.
   */
  #claimsOrNone(pod: PodSandbox, log: object): StoredClaim[] {
    try {
      return this.#claims(pod);
    } catch (error) {
      this.#options.logger.error({ ...log, err: error }, 'it is not known whether the pod has claims');
      return [];
    }
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

  /** Attaches all VFs of the pod and writes the metadata of all requests. @param claims of the pod, if just read */
  async #serve(pod: PodSandbox, signal: AbortSignal, claims?: StoredClaim[]): Promise<void> {
    await this.#options.onStep('hook-started', { pod: pod.uid });
    using netns = openPodNetns(pod);
    for (const { identity } of claims ?? this.#claims(pod)) {
      await this.#options.claimMutex.run(identity.uid, () => this.#serveClaim(pod, identity, netns, signal));
    }
    this.#told.add(pod.id);
    // When the runtime has its answer: the first look follows anyway, and sees what changed until then.
    setImmediate(() => this.#watchIfThere(pod));
  }

  #watchIfThere(pod: PodSandbox): void {
    if (!this.known.has(pod.id)) return;
    try {
      this.#watch(pod);
    } catch (error) {
      const log = { pod: `${pod.namespace}/${pod.name}`, sandbox: pod.id, err: error };
      this.#options.logger.warn(log, 'changes of the pod are not followed');
    }
  }

  /** From now on changes of the pod's VFs are followed, if there are any that have an interface. */
  #watch(pod: PodSandbox): void {
    const devices = this.#claims(pod).flatMap((claim) => claim.devices);
    if (devices.some((device) => !isUserSpace(device)))
      this.#options.live?.start(pod, (changed) => this.#refresh(changed));
  }

  /**
   * For a pod that was served before we were started: what changed meanwhile is looked up, and what was not written any
   * more is.
   */
  #follow(pod: PodSandbox): void {
    if (this.#told.has(pod.id) || this.#claims(pod).length === 0) return;
    this.#background.start(pod, pod.id, async () => {
      this.#watch(pod);
      await this.#refresh(pod);
      this.#told.add(pod.id);
    });
  }

  /** Reads the pod's VFs again and writes what changed. */
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
    signal.throwIfAborted();
    const { store, mover } = this.#options;
    const { uid: podUid, namespace: podNamespace, name: podName, id: sandboxId } = pod;
    if (this.#isOver(pod)) {
      throw new SandboxError(
        'sandbox-over',
        `pod ${podNamespace}/${podName} lives in another sandbox than ${sandboxId}`,
      );
    }
    const place = { podUid, podNamespace, podName, sandboxId, netnsPath: netns.path };
    const served: ServedDevice[] = [];
    const claim = store.claim(identity.uid);
    const devices = claim?.devices ?? [];
    using connection = RtnlConnection.open(netns);
    const observed = await mover.observe(devices.filter(isObserved), place, connection);
    for (const device of devices) {
      if (claim !== undefined) await this.#options.assure?.(claim, device);
      const state = observed.get(device) ?? (await mover.attach(device, place, netns, signal, connection));
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
    this.#background.start(pod, `${pod.id} ${identity.uid}`, async (signal) => {
      while (!(await look(signal)));
    });
  }

  /** Tries again until the pod is served or stopped. `first` is an attempt that is still under way. */
  #inBackground(pod: PodSandbox, first?: { work: Promise<void>; abort: AbortController }): void {
    const { clock, logger } = this.#options;
    const task = async (signal: AbortSignal) => {
      const log = { pod: `${pod.namespace}/${pod.name}`, sandbox: pod.id };
      let attempt =
        first?.work.catch(() => clock.sleep(retryMs.first, signal).then(() => this.#serve(pod, signal))) ??
        this.#serve(pod, signal);
      for (let pauseMs = retryMs.first; ; pauseMs = Math.min(2 * pauseMs, retryMs.last)) {
        try {
          await attempt;
          this.#reasons.delete(pod.id);
          this.#refusals.forget(pod.uid);
          logger.info(log, 'sandbox served after its hook');
          return;
        } catch (error) {
          signal.throwIfAborted();
          if (this.#isOver(pod)) return;
          this.#noteFailure(pod, error);
          logger.warn({ ...log, err: error, retryMs: pauseMs }, 'sandbox still not served');
        }
        await clock.sleep(pauseMs, signal);
        attempt = this.#serve(pod, signal);
      }
    };
    // With the same controller: who ends this ends the attempt that the hook began, a plugin that hangs included.
    this.#background.start(pod, pod.id, task, first?.abort);
  }

  #noteFailure(pod: PodSandbox, error: unknown): void {
    if (this.#isOver(pod)) return;
    const reason = explain(error);
    this.#reasons.set(pod.id, reason);
    const open = this.#claims(pod).filter(({ devices }) => devices.some((device) => !isServed(device, pod)));
    for (const { identity } of open) this.#options.onFailure?.(identity, reason);
  }

  /** A file from an earlier sandbox of the pod would let its containers start with what is over. */
  async #withdrawStale(claims: StoredClaim[], pod: PodSandbox): Promise<void> {
    for (const { identity, devices } of claims) {
      const stale = devices.some(({ attachment }) => attachment !== undefined && attachment.sandboxId !== pod.id);
      if (stale) await this.#options.withdraw(identity);
    }
  }

  /** Stop and removal of a sandbox ask for the same: with a plugin that hangs they must not queue up. */
  async #giveBack(pod: PodSandbox): Promise<void> {
    const running = this.#leaving.get(pod.id);
    if (running !== undefined) return await running;
    const leaving = this.#leaveAll(pod).finally(() => this.#leaving.delete(pod.id));
    this.#leaving.set(pod.id, leaving);
    await leaving;
  }

  async #leaveAll(pod: PodSandbox): Promise<void> {
    const { store, claimMutex } = this.#options;
    for (const { identity } of store.claimsOfPod(pod.uid)) {
      await claimMutex.run(identity.uid, () => this.#leave(identity, pod.id));
    }
  }
}
