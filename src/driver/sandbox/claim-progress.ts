import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import { asOneError, type StoredClaim } from '../model/index.ts';
import type { ServeResult } from './claim-work.ts';
import type { End } from './phases.ts';
import type { SandboxFacts } from './pod.ts';

/** Failure of a claim or sandbox, and the number of consecutive failed attempts. */
export interface Failure {
  error: unknown;
  attempts: number;
}

/** Failed part of a pass: the work on one claim, or on all claims. */
export interface FailedWork {
  error: unknown;
  /** Claim as `namespace/name`; absent if the work on all claims failed. */
  claim?: string;
  /** Whether the previous attempt failed for the same reason. */
  isRepeated?: boolean;
}

/** Scope of a pass over the claims of a pod. */
export interface Pass {
  /** Whether ready claims are read again, since the pod may have changed. */
  readsAgain: boolean;
  /** Whether failed claims, and claims with tentative addresses, are tried again. */
  tries: boolean;
}

/** Progress of each claim of a pod in one sandbox. Claims are identified by their UIDs. */
export class ClaimProgress {
  readonly #ready = new Set<string>();
  /** Claims whose addresses are tentative and will change soon. */
  readonly #tentative = new Set<string>();
  /**
   * Failures of claims that were neither served nor detached since. A ready claim with a failure could not be read again;
   * other claims are retried.
   */
  readonly #failures = new Map<string, Failure & { claim: string }>();
  /** End of the sandbox for which a claim was detached, by UID of the claim. */
  readonly #detached = new Map<string, End>();
  #changes = 1;
  #changesRead = 0;
  /**
   * Attempt to serve failed claims: in the next pass (`due`), in the present one (`under way`), or not before `tryAgain`
   * (`over`).
   */
  #attempt: 'due' | 'under way' | 'over' = 'due';

  /** Number of changes in the pod that may affect ready claims. */
  get changes(): number {
    return this.#changes;
  }

  /** Value of {@link changes} at the beginning of the last pass, which has read these changes. */
  get changesRead(): number {
    return this.#changesRead;
  }

  /** Whether another pass is needed: the pod may have changed since the last one, or failed claims are to be tried. */
  get isPassDue(): boolean {
    return this.#isDirty || this.#attempt === 'due';
  }

  changed(): void {
    this.#changes++;
  }

  /** Makes the next pass try failed claims, unless the present pass already does. */
  tryAgain(): void {
    if (this.#attempt === 'over') this.#attempt = 'due';
  }

  /** Records the beginning of a pass. @param isEnd whether the pass detaches VFs, and so tries all claims */
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

  /** Returns whether the pod waits for VFs of a claim. It does not if they were already attached when the driver started. */
  isAwaited({ identity, devices }: StoredClaim): boolean {
    return !this.#ready.has(identity.uid) && devices.some(({ attachment }) => attachment === undefined);
  }

  /** Returns whether addresses of a claim are tentative, so that they will change soon. */
  isTentative(uid: string): boolean {
    return this.#tentative.has(uid);
  }

  get isAnyReady(): boolean {
    return this.#ready.size > 0;
  }

  get isAnyTentative(): boolean {
    return this.#tentative.size > 0;
  }

  /** Returns why a claim is not ready; `undefined` if it is ready, or was not tried yet. */
  failureOf(uid: string): Failure | undefined {
    return this.#ready.has(uid) ? undefined : this.#failures.get(uid);
  }

  /** Failures of claims that were neither served nor detached since. */
  get failures(): FailedWork[] {
    return [...this.#failures.values()];
  }

  /** Returns whether a pass must serve a claim. */
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

  /** Records that a claim is no longer ready. */
  withdrawn(uid: string): void {
    this.#ready.delete(uid);
    this.#tentative.delete(uid);
  }

  /** Records a failure. A ready claim stays ready: the failure does not show that anything is wrong with it. */
  failed(identity: ClaimIdentity, error: unknown): FailedWork {
    const claim = claimName(identity);
    const before = this.#failures.get(identity.uid);
    this.#failures.set(identity.uid, { error, claim, attempts: (before?.attempts ?? 0) + 1 });
    return { error, claim, isRepeated: before !== undefined && explain(before.error) === explain(error) };
  }

  /** Returns whether a claim must still be detached: it has VFs in the sandbox, or containers that wait for it. */
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

/** Combines failures into one error that names the claims; `undefined` if there are no failures. */
export function errorOf(failed: readonly FailedWork[]): unknown {
  const texts = failed.map(({ claim, error }) => `${claim === undefined ? '' : `claim ${claim}: `}${explain(error)}`);
  return asOneError(
    failed.map(({ error }) => error),
    texts,
  );
}
