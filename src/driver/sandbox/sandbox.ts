import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import { Backoff } from '../../lib/backoff.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import { pauses } from '../../lib/waiting-times.ts';
import { asOneError, DeviceProgress, SandboxError, type StoredClaim, type StoredDevice } from '../model/index.ts';
import { ClaimProgress, errorOf, type FailedWork, type Failure, type Pass } from './claim-progress.ts';
import type { ClaimSteps, ServeResult } from './claim-work.ts';
import { type End, type Phase, SandboxPhase, type Wanted } from './phases.ts';
import { isLocatedSoon, openNamespaceOf, type SandboxFacts } from './pod.ts';
import { PodChanges } from './pod-changes.ts';
import { PodWait } from './pod-wait.ts';
import { unreported } from './read-meanwhile.ts';
import type { SandboxDeps } from './sandbox-deps.ts';
import { serveInTurn } from './serve-in-turn.ts';

/**
 * One pod sandbox, and the VFs of the pod's claims in it. `want` sets the wanted state, and passes run until it is reached.
 * Each pass starts from the store and the kernel's state, so it can be repeated at any time. A pass handles each claim
 * separately: a failed claim is retried after a pause, and does not affect the others.
 */
export class Sandbox implements AsyncDisposable {
  readonly #deps: SandboxDeps;
  readonly #log: object;
  readonly #retry: Backoff;
  readonly #progress = new ClaimProgress();
  #facts: SandboxFacts;
  readonly #knownSinceMs: number;
  readonly #wait: PodWait;
  readonly #changes: PodChanges;
  readonly #phase = new SandboxPhase();
  /** Failures that remain after the last pass. */
  #failed: readonly FailedWork[] = [];
  /** Aborts attempts to attach. */
  readonly #attaching = new AbortController();
  #pass: Promise<void> | undefined;

  constructor(facts: SandboxFacts, deps: SandboxDeps) {
    this.#facts = facts;
    this.#deps = deps;
    const { clock, onWaited } = deps;
    this.#wait = new PodWait({ clock, onWaited: (...wait) => onWaited(facts.podUid, ...wait) });
    this.#knownSinceMs = clock.nowMs();
    this.#log = { pod: `${facts.podNamespace}/${facts.podName}`, podUid: facts.podUid, sandbox: facts.sandboxId };
    const [onChange, onFlapping] = [() => this.#changed(), () => this.#flapping()];
    this.#changes = new PodChanges({ deps, log: this.#log, onChange, onFlapping });
    this.#retry = new Backoff(deps.clock, pauses.sandbox, () => {
      this.#progress.tryAgain();
      // A failure without a claim means that the whole pass failed, so ready claims were not read.
      if (this.#failed.some(({ claim }) => claim === undefined)) this.#progress.changed();
      this.#inBackground();
    });
  }

  get facts(): SandboxFacts {
    return this.#facts;
  }

  /** Adds the network namespace of the sandbox if it was unknown. */
  locate(facts: SandboxFacts): void {
    if (this.#facts.isNetnsUnknown && facts.netnsPath !== undefined) this.#facts = facts;
  }

  get phase(): Phase {
    return this.#phase.current;
  }

  /** Errors of all claims that the last pass left, combined, and the number of consecutive failures. */
  get failure(): Failure | undefined {
    const error = errorOf(this.#failed);
    return error === undefined ? undefined : { error, attempts: this.#retry.attempts };
  }

  /** Returns why a claim is not ready; `undefined` if it is ready, or was not tried yet. */
  failureOf(claimUid: string): Failure | undefined {
    return this.#progress.failureOf(claimUid);
  }

  /** Returns whether the claim's VFs are attached and its metadata is written. */
  isReady(claimUid: string): boolean {
    return !this.isEnding && this.#progress.isReady(claimUid);
  }

  /** How long the pod has waited for its VFs, ms; `undefined` while it does not wait. */
  get waitedMs(): number | undefined {
    return this.#wait.waitedMs;
  }

  /** Whether VFs are being detached for good. A sandbox that turns out to be alive is served by a new object. */
  get isEnding(): boolean {
    return this.#phase.wanted !== 'ready';
  }

  /** Whether VFs were detached because the sandbox seemed to have ended. */
  get isAway(): boolean {
    return this.#phase.current === 'gone' && this.#phase.wanted === 'away';
  }

  /**
   * Sets the wanted state, unless a more final one is set, and retries failures at once. Joins a running pass.
   * @throws the failures of the pass, which are also retried in the background
   */
  async want(desired: Wanted): Promise<void> {
    if (this.#phase.yieldsTo(desired)) this.#end(desired);
    if (this.#isReached()) return;
    this.#progress.tryAgain();
    await this.#work();
  }

  /** Ends containers that wait in this sandbox, since their pod is being deleted. A claim that is ready by then stays ready. */
  async endWaiting(): Promise<void> {
    const waiting = this.#claims().filter(({ identity }) => !this.#progress.isReady(identity.uid));
    const errors: unknown[] = [];
    for (const { identity } of waiting) {
      await this.#deps.claims.end(identity, this.facts.sandboxId).catch((error: unknown) => errors.push(error));
    }
    if (errors.length > 0) throw asOneError(errors);
  }

  /** Reads the VFs again, and serves claims that the pod got since the last pass. */
  async refresh(): Promise<void> {
    this.#progress.changed();
    await this.want(this.#phase.wanted);
  }

  /** Stops all work; VFs stay where they are. */
  async [Symbol.asyncDispose]() {
    this.#retry[Symbol.dispose]();
    this.#changes.unfollow();
    this.#attaching.abort(new SandboxError('not-ready', 'the driver is being stopped'));
    await this.#pass?.catch(() => undefined);
    this.#changes.unfollow();
  }

  #isReached(): boolean {
    if (this.#phase.current === 'gone') return true;
    if (this.#phase.current !== 'ready' || this.#progress.isPassDue) return false;
    return this.#claims().every(({ identity }) => this.#progress.isReady(identity.uid));
  }

  #end(end: End): void {
    if (!this.isEnding) this.#progress.forgetFailures();
    this.#phase.enter({ phase: 'detaching', end });
    this.#wait.end('ended');
    this.#attaching.abort(new SandboxError('not-ready', `sandbox ${this.facts.sandboxId} is being stopped`));
  }

  /** Handles a change in the pod. Does not retry failures, since each attempt changes the pod, too. */
  #changed(): void {
    this.#progress.changed();
    if (!this.isEnding) this.#inBackground();
  }

  /** Runs a pass in the background. Failures are logged where they happen. */
  #inBackground(): void {
    if (this.#phase.current !== 'gone') void this.#work().catch(() => undefined);
  }

  async #work(): Promise<void> {
    this.#pass ??= this.#run();
    await this.#pass;
  }

  /** Runs a pass. Runs another one at once if the wanted state or the pod has changed during it. */
  async #run(): Promise<void> {
    try {
      for (;;) {
        const goal = this.#phase.wanted;
        const pass = this.#progress.passBegins(goal !== 'ready');
        if (pass.tries) this.#retry.cancel();
        const work = goal === 'ready' ? this.#attach(pass) : this.#detach(goal);
        const failed = await work.catch((error: unknown) => [{ error }]);
        this.#progress.passEnds();
        if (goal !== this.#phase.wanted) continue;
        this.#conclude(failed);
        if (goal === 'ready' && this.#progress.isPassDue) continue;
        const { failure } = this;
        if (failure !== undefined) throw failure.error;
        return;
      }
    } finally {
      // Reset in the same step as the last check, so that a later request starts a pass of its own.
      this.#pass = undefined;
    }
  }

  /** Serves the claims that are due. @returns the claims that were not served, with the errors */
  async #attach(pass: Pass): Promise<FailedWork[]> {
    const { clock, logger } = this.#deps;
    const claims = this.#claims();
    this.#progress.forgetAllBut(claims);
    if (claims.length === 0) {
      this.#wait.end('ended');
      this.#changes.unfollow();
      return [];
    }
    const startedAt = clock.nowMs();
    if (claims.some((claim) => this.#progress.isAwaited(claim))) {
      this.#wait.begin(this.#phase.current === 'pending' ? this.#knownSinceMs : startedAt);
    }
    if (this.#phase.current !== 'ready') this.#phase.enter({ phase: 'attaching' });
    const due = claims.filter(({ identity }) => this.#progress.isDue(identity.uid, pass));
    const failed = due.length === 0 ? [] : await this.#serveAll(due, claims);
    if (this.isEnding) return failed;
    const isWaiting = claims.some(({ identity }) => this.failureOf(identity.uid) !== undefined);
    if (!isWaiting) this.#wait.end('ready');
    if (this.#phase.current !== 'ready' && !isWaiting) {
      this.#phase.enter({ phase: 'ready' });
      logger.info({ ...this.#log, ms: Math.round(clock.nowMs() - startedAt) }, 'sandbox ready');
    }
    return failed;
  }

  /** @param all all claims of the pod: those that are not due are read if they change during the work */
  async #serveAll(due: readonly StoredClaim[], all: readonly StoredClaim[]): Promise<FailedWork[]> {
    const { networks, claims, clock } = this.#deps;
    const { signal } = this.#attaching;
    const total = due.flatMap(({ devices }) => devices).length;
    const onSlow = ({ identity }: StoredClaim, progress: string) => this.#reportSlow(identity, progress);
    using progress = new DeviceProgress({ work: 'attached', total, clock, onSlow });
    const failed: FailedWork[] = [];
    const fail = async (identity: ClaimIdentity, error: unknown, lost?: readonly StoredDevice[]) => {
      signal.throwIfAborted();
      failed.push(await this.#fail(identity, error, lost));
    };
    let running = 0;
    const serve = async ({ identity }: StoredClaim, work: Promise<ServeResult>) => {
      running++;
      try {
        const served = await work;
        if (typeof served !== 'object') return this.#progress.served(identity.uid, served);
        this.#progress.withdrawn(identity.uid);
        await fail(identity, served.withdrawn, served.lost ?? []);
      } catch (error) {
        await fail(identity, error);
      } finally {
        this.#wait.enter(--running > 0 ? 'attach' : 'queued');
      }
    };
    const withVfs = due.filter(({ devices }) => devices.length > 0);
    for (const claim of due) {
      if (!withVfs.includes(claim)) await serve(claim, claims.serveWithoutVfs(claim.identity, this.facts));
    }
    if (withVfs.length === 0) return failed;
    try {
      using namespace = openNamespaceOf(this.facts, networks);
      const place = { ...this.facts, netnsPath: namespace.netns.path };
      const serveWith = (claim: StoredClaim, steps: ClaimSteps) => {
        const pod = claims.podLinks(namespace, () => this.#changes.follow(namespace));
        return serve(claim, claims.serve(claim.identity, place, pod, signal, steps));
      };
      await serveInTurn(withVfs, {
        all: all.filter(({ devices }) => devices.length > 0),
        clock,
        progress: this.#progress,
        isFollowed: () => this.#changes.isFollowed,
        read: (claim) => serveWith(claim, unreported),
        serve: (claim, waits) => {
          progress.claimBegins(claim);
          const steps = this.#wait.timed(progress, waits, () => progress.claimWaits(claim));
          return serveWith(claim, steps).finally(() => progress.claimEnds(claim));
        },
      });
    } catch (error) {
      // Without a namespace, no claim with VFs can be served.
      for (const { identity } of withVfs) await fail(identity, error);
    }
    return failed;
  }

  #reportSlow(claim: ClaimIdentity, progress: string): void {
    if (this.isEnding || this.#progress.isReady(claim.uid) || !this.#wait.becomesSlow()) return;
    const { onSlow, logger } = this.#deps;
    logger.info({ ...this.#log, progress }, 'the pod waits for its devices');
    onSlow(this.#facts, claim, progress);
  }

  /** Detaches the VFs in the sandbox. @returns the claims whose VFs were not detached, with the errors */
  async #detach(end: End): Promise<FailedWork[]> {
    const { store, claims, logger } = this.#deps;
    const { sandboxId } = this.facts;
    this.#changes.unfollow();
    const failed: FailedWork[] = [];
    let count = 0;
    const due = store.claims().filter((claim) => this.#progress.isToLeave(claim, this.facts, end));
    this.#progress.forgetAllBut(due);
    for (const { identity } of due) {
      try {
        count += await claims.detach(identity, sandboxId, end);
        this.#progress.detached(identity.uid, end);
      } catch (error) {
        failed.push(await this.#fail(identity, error));
      }
    }
    if (failed.length === 0 && end === this.#phase.wanted) this.#phase.enter({ phase: 'gone', end });
    if (count > 0) logger.info({ ...this.#log, devices: count }, 'VFs detached');
    return failed;
  }

  /** Reports a claim that cannot be served. A ready claim stays ready: its VFs were not read, so that no fault is known. */
  async #fail(identity: ClaimIdentity, error: unknown, lost?: readonly StoredDevice[]): Promise<FailedWork> {
    const { onFailure, logger, claims, clock } = this.#deps;
    const failed = this.#progress.failed(identity, error);
    if (this.isEnding || this.#progress.isReady(identity.uid)) return failed;
    this.#phase.enter({ phase: 'attaching' });
    const reason = explain(error);
    const log = { ...this.#log, claim: failed.claim };
    try {
      if (!isLocatedSoon(error, clock.nowMs() - this.#knownSinceMs)) onFailure(identity, reason, error, lost);
    } catch (cause) {
      logger.warn({ ...log, err: cause }, 'cannot report the failure of a claim');
    }
    await claims
      .hold(identity, this.facts.sandboxId, reason)
      .catch((cause: unknown) => logger.warn({ ...log, err: cause }, 'cannot update the start gate of a claim'));
    return failed;
  }

  /** Schedules the next attempt after a pass. @param failed failures of the pass */
  #conclude(failed: readonly FailedWork[]): void {
    const { logger } = this.#deps;
    this.#failed = [...failed.filter(({ claim }) => claim === undefined), ...this.#progress.failures];
    if (this.#failed.length === 0) {
      this.#retry.reset();
      if (!this.isEnding) this.#changes.readLater(this.#progress.isAnyTentative, this.#retry);
      return;
    }
    // No ready claim remains whose changes could matter.
    if (!this.#progress.isAnyReady) this.#changes.unfollow();
    if (failed.length === 0) return;
    const retry = this.#retry.isScheduled ? {} : { retryMs: this.#retry.schedule() };
    const message = this.isEnding ? 'cannot detach the VFs of a sandbox yet' : 'cannot get a sandbox ready yet';
    for (const { error, claim, isRepeated = false } of failed) {
      const fields = { ...this.#log, ...defined({ claim }), err: error, ...retry };
      logger[isRepeated ? 'debug' : 'warn'](fields, message);
    }
  }

  /** Returns the pod's prepared claims. @throws StateError `store-unusable` */
  #claims(): StoredClaim[] {
    return this.#deps.store.claimsOfPod(this.facts.podUid).filter(({ state }) => state === 'prepared');
  }

  #flapping(): void {
    this.#deps.logger.warn(this.#log, 'pod network is flapping; reading it less often');
    for (const { identity } of this.#claims()) this.#deps.onFlapping(identity);
  }
}
