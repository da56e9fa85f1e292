import type { Clock } from '../clock.ts';
import { explain } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import type { Store, StoredClaim } from '../state/index.ts';
import type { ClaimWork } from './claim-work.ts';
import { SandboxError } from './errors.ts';
import { Follow } from './follow.ts';
import type { NamespaceEnds } from './namespace-ends.ts';
import type { NetworkNamespace, Networks } from './networks.ts';
import { openNamespaceOf, type SandboxFacts } from './pod.ts';
import { Retry } from './retry.ts';

/** If the pod is not followed, tentative addresses are read again: duplicate address detection takes 1 to 3 s. */
const tentative = { everyMs: 500, reads: 10 };

/**
 * Phase of a sandbox.
 * `pending`: nothing was done yet. `attaching`: VFs are being attached; retried after a failure. `ready`: VFs are attached and
 * metadata is written. `detaching`: VFs are being detached; retried after a failure. `gone`: no VF is in it.
 */
export type Phase = 'pending' | 'attaching' | 'ready' | 'detaching' | 'gone';

/**
 * The wanted state of a sandbox, each more final than the one before. `away`: its VFs are detached and its containers wait,
 * since it may turn out to be alive. `gone`: it has ended, and so do containers that wait in it.
 */
export type Wanted = 'ready' | 'away' | 'gone';

const finality: Record<Wanted, number> = { ready: 0, away: 1, gone: 2 };

export interface SandboxDeps {
  store: Pick<Store, 'claims' | 'claimsOfPod'>;
  claims: Pick<ClaimWork, 'detach' | 'end' | 'hold' | 'podLinks' | 'serve'>;
  networks: Networks;
  ends: Pick<NamespaceEnds, 'watch'>;
  /** Called for each claim that is not ready after an attempt to attach it. */
  onFailure: (claim: ClaimIdentity, reason: string) => void;
  /** Called for each claim of a pod whose links and addresses change all the time: the pod is read less often then. */
  onFlapping: (claim: ClaimIdentity) => void;
  /** Whether changes in running pods are followed. */
  liveUpdates: boolean;
  clock: Clock;
  logger: Logger;
}

/**
 * One pod sandbox, and the VFs of the pod's claims in it. `want` sets the wanted state, and passes run until it is reached:
 * each pass starts from the store and the kernel's state, so it can be repeated at any time.
 */
export class Sandbox implements AsyncDisposable {
  readonly #deps: SandboxDeps;
  readonly #log: object;
  readonly #retry: Retry;
  /** UIDs of the claims that are ready here. */
  readonly #ready = new Set<string>();
  #facts: SandboxFacts;
  #phase: Phase = 'pending';
  #lastError: unknown;
  #wanted: Wanted = 'ready';
  /** Something may have changed since the last pass began. */
  #isDirty = true;
  #tentativeReads = 0;
  /** Ends attempts to attach. */
  readonly #attaching = new AbortController();
  #pass: Promise<void> | undefined;
  #follow: Follow | undefined;
  /** Failures are logged where they happen. */
  readonly #again = () => void this.refresh().catch(() => undefined);

  constructor(facts: SandboxFacts, deps: SandboxDeps) {
    this.#facts = facts;
    this.#deps = deps;
    this.#log = { pod: `${facts.podNamespace}/${facts.podName}`, podUid: facts.podUid, sandbox: facts.sandboxId };
    this.#retry = new Retry(deps.clock, this.#again);
  }

  get facts(): SandboxFacts {
    return this.#facts;
  }

  /** Adds the network namespace if it was unknown. */
  locate(facts: SandboxFacts): void {
    if (this.#facts.isNetnsUnknown && facts.netnsPath !== undefined) this.#facts = facts;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** Why the last attempt failed, and how many have failed in a row. */
  get failure(): { error: unknown; attempts: number } | undefined {
    return this.#lastError === undefined ? undefined : { error: this.#lastError, attempts: this.#retry.attempts };
  }

  /** Whether the claim's VFs are attached and its metadata is written. */
  isReady(claimUid: string): boolean {
    return !this.isEnding && this.#ready.has(claimUid);
  }

  /** Its VFs are being detached for good: if the sandbox turns out to be alive, a new object serves it. */
  get isEnding(): boolean {
    return this.#wanted !== 'ready';
  }

  /**
   * Sets the wanted state, unless a more final one is set already. Joins a pass that is under way.
   * @throws the failure of the pass, which is retried in the background
   */
  async want(desired: Wanted): Promise<void> {
    if (finality[desired] > finality[this.#wanted]) {
      this.#wanted = desired;
      this.#attaching.abort(new SandboxError('not-ready', `sandbox ${this.facts.sandboxId} is being stopped`));
    }
    if (this.#isSettled()) return;
    this.#retry.cancel();
    this.#pass ??= this.#run().finally(() => {
      this.#pass = undefined;
    });
    await this.#pass;
  }

  /** Ends containers that wait here: their pod is being deleted. A claim that becomes ready meanwhile stays ready. */
  async endWaiting(): Promise<void> {
    for (const { identity } of this.#claims()) {
      if (!this.#ready.has(identity.uid)) await this.#deps.claims.end(identity, this.facts.sandboxId);
    }
  }

  /** Reads the VFs again, and serves claims that were added since. */
  async refresh(): Promise<void> {
    this.#isDirty = true;
    await this.want(this.#wanted);
  }

  /** Stops all work; VFs stay where they are. */
  async [Symbol.asyncDispose]() {
    this.#retry[Symbol.dispose]();
    this.#follow?.[Symbol.dispose]();
    this.#attaching.abort(new SandboxError('not-ready', 'the driver is being stopped'));
    await this.#pass?.catch(() => undefined);
    this.#unfollow();
  }

  #isSettled(): boolean {
    if (this.#phase === 'gone') return true;
    if (this.isEnding || this.#phase !== 'ready' || this.#isDirty) return false;
    return this.#claims().every(({ identity }) => this.#ready.has(identity.uid));
  }

  /** Runs a pass, and another one at once if the wanted state or something in the pod has changed meanwhile. */
  async #run(): Promise<void> {
    for (;;) {
      const goal = this.#wanted;
      try {
        await (goal === 'ready' ? this.#attach() : this.#detach(goal));
        if (goal !== this.#wanted || (goal === 'ready' && this.#isDirty)) continue;
        this.#lastError = undefined;
        this.#retry.reset();
        return;
      } catch (error) {
        if (goal !== this.#wanted) continue;
        await this.#failed(error);
        throw error;
      }
    }
  }

  async #attach(): Promise<void> {
    const { clock, logger, networks } = this.#deps;
    const claims = this.#claims();
    this.#isDirty = false;
    if (claims.length === 0) return this.#unfollow();
    const startedAt = clock.nowMs();
    const isFirst = this.#phase !== 'ready';
    if (isFirst) this.#phase = 'attaching';
    using namespace = openNamespaceOf(this.facts, networks);
    const place = { ...this.facts, netnsPath: namespace.netns.path };
    const pod = this.#deps.claims.podLinks(namespace, () => this.#startFollowing(namespace));
    let isTentative = false;
    for (const { identity } of claims) {
      const found = await this.#deps.claims.serve(identity, place, pod, this.#attaching.signal);
      if (found === 'gone') continue;
      this.#ready.add(identity.uid);
      if (found === 'tentative') isTentative = true;
    }
    if (isFirst) {
      this.#phase = 'ready';
      logger.info({ ...this.#log, ms: Math.round(clock.nowMs() - startedAt) }, 'sandbox ready');
    }
    if (this.#wanted === 'ready') this.#readLater(isTentative);
  }

  async #detach(goal: Exclude<Wanted, 'ready'>): Promise<void> {
    const { store, logger } = this.#deps;
    const { sandboxId } = this.facts;
    this.#phase = 'detaching';
    this.#unfollow();
    let count = 0;
    for (const { identity } of store.claims().filter((claim) => concerns(claim, this.facts))) {
      this.#ready.delete(identity.uid);
      count += await this.#deps.claims.detach(identity, sandboxId, goal);
    }
    this.#ready.clear();
    this.#phase = 'gone';
    if (count > 0) logger.info({ ...this.#log, devices: count }, 'VFs detached');
  }

  async #failed(error: unknown): Promise<void> {
    const { onFailure, logger, claims } = this.#deps;
    this.#lastError = error;
    // The attempt's own changes would start the next one at once, without the retry delay.
    if (this.#phase === 'attaching') this.#unfollow();
    const reason = explain(error);
    const retryMs = this.#retry.schedule();
    const message = this.isEnding ? 'VFs not detached yet' : 'sandbox not ready yet';
    logger.warn({ ...this.#log, err: error, retryMs }, message);
    if (this.isEnding) return;
    for (const { identity } of this.#claims().filter(({ identity }) => !this.#ready.has(identity.uid))) {
      onFailure(identity, reason);
      await claims
        .hold(identity, this.facts.sandboxId, reason)
        .catch((cause: unknown) => logger.warn({ ...this.#log, err: cause }, 'start gate not updated'));
    }
  }

  /** Prepared claims of the pod. @throws StateError `store-unusable` */
  #claims(): StoredClaim[] {
    return this.#deps.store.claimsOfPod(this.facts.podUid).filter(({ state }) => state === 'prepared');
  }

  #unfollow(): void {
    this.#follow?.[Symbol.dispose]();
    this.#follow = undefined;
  }

  /** From now on, a change in the namespace causes another pass. */
  #startFollowing(namespace: NetworkNamespace): void {
    const { liveUpdates, networks, ends, clock, logger } = this.#deps;
    if (!liveUpdates || this.#follow !== undefined) return;
    const onFlapping = () => reportFlapping(this.#claims(), this.#log, this.#deps);
    try {
      this.#follow = new Follow(namespace, { networks, ends, clock, onChange: this.#again, onFlapping });
    } catch (error) {
      logger.warn({ ...this.#log, err: error }, 'changes of the pod are not followed');
    }
  }

  /** @param isTentative whether addresses will change soon: if the pod is followed, the kernel reports that */
  #readLater(isTentative: boolean): void {
    const isAwaited = isTentative && this.#follow === undefined;
    this.#tentativeReads = isAwaited ? this.#tentativeReads + 1 : 0;
    if (isAwaited && this.#tentativeReads <= tentative.reads) this.#retry.after(tentative.everyMs);
  }
}

/** Whether a VF of the claim is in the sandbox, or containers of the sandbox may wait for the claim. */
function concerns({ devices, podUids }: StoredClaim, { sandboxId, podUid }: SandboxFacts): boolean {
  return podUids.includes(podUid) || devices.some(({ attachment }) => attachment?.sandboxId === sandboxId);
}

function reportFlapping(
  claims: readonly StoredClaim[],
  log: object,
  { logger, onFlapping }: Pick<SandboxDeps, 'logger' | 'onFlapping'>,
): void {
  logger.warn(log, 'links and addresses of the pod change all the time: it is looked at less often');
  for (const { identity } of claims) onFlapping(identity);
}
