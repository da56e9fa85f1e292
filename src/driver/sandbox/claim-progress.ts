import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import { asOneError, type StoredClaim } from '../model/index.ts';
import type { ServeResult } from './claim-work.ts';
import type { End } from './phases.ts';
import type { SandboxFacts } from './pod.ts';

/** Why something failed, and how many attempts have failed in a row. */
export interface Failure {
  error: unknown;
  attempts: number;
}

/** Part of a pass that has failed: the work on a claim, or on all of them. */
export interface FailedWork {
  error: unknown;
  /** As `namespace/name`; absent: on all of them. */
  claim?: string;
  /** Whether the last attempt has failed for the same reason. */
  isRepeated?: boolean;
}

/** A pass over the claims of a pod. */
export interface Pass {
  /** Whether claims that are ready may have changed, and are read. */
  readsAgain: boolean;
  /** Whether claims that have failed, or whose addresses were tentative, are tried. */
  tries: boolean;
}

/** How far the claims of a pod are in one sandbox, each by itself. Claims are named by their UID. */
export class ClaimProgress {
  readonly #ready = new Set<string>();
  /** Those whose addresses will change soon. */
  readonly #tentative = new Set<string>();
  /** Claims with a failure, until they are served or detached. Those that are ready could not be read again; others are retried. */
  readonly #failures = new Map<string, Failure & { claim: string }>();
  /** To which end it was detached. */
  readonly #detached = new Map<string, End>();
  #changes = 1;
  #changesRead = 0;
  /** When claims that have failed are tried: in the next pass, in the one under way, or not before `tryAgain`. */
  #attempt: 'due' | 'under way' | 'over' = 'due';

  /** How often claims that are ready may have changed. */
  get changes(): number {
    return this.#changes;
  }

  /** How often they had when the last pass began, which reads them. */
  get changesRead(): number {
    return this.#changesRead;
  }

  /** Whether another pass has something to do: claims that are ready may have changed since the last one, or are to be tried. */
  get isPassDue(): boolean {
    return this.#isDirty || this.#attempt === 'due';
  }

  changed(): void {
    this.#changes++;
  }

  /** The next pass tries what has failed, unless one is under way that does. */
  tryAgain(): void {
    if (this.#attempt === 'over') this.#attempt = 'due';
  }

  /** @param isEnd whether the pass detaches, and so tries everything */
  passBegins(isEnd: boolean): Pass {
    const pass = { readsAgain: this.#isDirty, tries: isEnd || this.#attempt === 'due' };
    this.#changesRead = this.#changes;
    this.#attempt = pass.tries ? 'under way' : 'over';
    return pass;
  }

  passEnds(): void {
    if (this.#attempt === 'under way') this.#attempt = 'over';
  }

  isReady(uid: string): boolean {
    return this.#ready.has(uid);
  }

  /** Whether the pod waits for VFs of a claim. Those of a pod that ran before the driver started are attached already. */
  isAwaited({ identity, devices }: StoredClaim): boolean {
    return !this.#ready.has(identity.uid) && devices.some(({ attachment }) => attachment === undefined);
  }

  /** Whether its addresses will change soon. */
  isTentative(uid: string): boolean {
    return this.#tentative.has(uid);
  }

  get isAnyReady(): boolean {
    return this.#ready.size > 0;
  }

  get isAnyTentative(): boolean {
    return this.#tentative.size > 0;
  }

  /** Why a claim is not ready; `undefined` if it is, or was not tried yet. */
  failureOf(uid: string): Failure | undefined {
    return this.#ready.has(uid) ? undefined : this.#failures.get(uid);
  }

  /** What has failed and was not repeated with success. */
  get failures(): FailedWork[] {
    return [...this.#failures.values()];
  }

  /** Whether a pass has to serve a claim. */
  isDue(uid: string, { readsAgain, tries }: Pass): boolean {
    const hasFailed = this.#failures.has(uid);
    if (!this.#ready.has(uid)) return tries || !hasFailed;
    return readsAgain || (tries && (hasFailed || this.#tentative.has(uid)));
  }

  served(uid: string, result: Exclude<ServeResult, object>): void {
    this.#failures.delete(uid);
    this.#tentative.delete(uid);
    if (result === 'gone') this.#ready.delete(uid);
    else this.#ready.add(uid);
    if (result === 'tentative') this.#tentative.add(uid);
  }

  /** It was ready, and is no longer. */
  withdrawn(uid: string): void {
    this.#ready.delete(uid);
    this.#tentative.delete(uid);
  }

  /** One that is ready stays so: it is not known whether anything is wrong with it. */
  failed(identity: ClaimIdentity, error: unknown): FailedWork {
    const claim = claimName(identity);
    const before = this.#failures.get(identity.uid);
    this.#failures.set(identity.uid, { error, claim, attempts: (before?.attempts ?? 0) + 1 });
    return { error, claim, isRepeated: before !== undefined && explain(before.error) === explain(error) };
  }

  /** Whether a claim has VFs in the sandbox, or containers that wait for it and were not ended. */
  isToLeave({ devices, podUids, identity }: StoredClaim, facts: SandboxFacts, goal: End): boolean {
    if (devices.some(({ attachment }) => attachment?.sandboxId === facts.sandboxId)) return true;
    return podUids.includes(facts.podUid) && this.#detached.get(identity.uid) !== goal;
  }

  detached(uid: string, goal: End): void {
    this.#detached.set(uid, goal);
    this.withdrawn(uid);
    this.#failures.delete(uid);
  }

  forgetFailures(): void {
    this.#failures.clear();
  }

  forgetAllBut(claims: readonly StoredClaim[]): void {
    const uids = new Set(claims.map(({ identity }) => identity.uid));
    for (const known of [this.#ready, this.#tentative, this.#failures]) {
      for (const uid of known.keys()) if (!uids.has(uid)) known.delete(uid);
    }
  }

  get #isDirty(): boolean {
    return this.#changes !== this.#changesRead;
  }
}

/** One error for all that has failed, which names the claims; `undefined` if nothing has. */
export function errorOf(failed: readonly FailedWork[]): unknown {
  const texts = failed.map(({ claim, error }) => `${claim === undefined ? '' : `claim ${claim}: `}${explain(error)}`);
  return asOneError(
    failed.map(({ error }) => error),
    texts,
  );
}
