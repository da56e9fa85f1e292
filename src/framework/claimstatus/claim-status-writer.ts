import { Background } from '../../lib/background.ts';
import { pauseMs } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { copyOf } from '../../lib/copy.ts';
import { explain } from '../../lib/errors.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { notify } from '../../lib/notify.ts';
import { RateLimit } from '../../lib/rate-limit.ts';
import { pauses } from '../../lib/waiting-times.ts';
import { isKubeError, type ResourceApi, type ResourceClaim, retryPauseMs } from '../kube/index.ts';
import { type ClaimIdentity, claimName } from '../metadata/index.ts';
import { type DeviceStatus, isOfSameDevice, toAllocatedStatus } from './device-status.ts';
import { ClaimStatusError, toStatusError } from './errors.ts';
import { type EntryOwner, isOf, type StoredStatus, statusPatch } from './status-patch.ts';

/** Number of claims whose status is written at once. The kubelet's calls need the API server too, and take precedence. */
const maxParallel = 4;
/** Number of failed removals after which the entries stay: an unprepared claim is usually deleted soon, with its status. */
const maxRemovalFailures = 8;
/**
 * Delay before a removal, ms: by then, most claims are deleted or deallocated. If a restart loses the removal, no harm is done:
 * the API server itself drops the entries of devices that are no longer allocated.
 */
const removalDelayMs = 5_000;
/**
 * Longest time for which a state that is about to change is held back, and interval of the checks, ms. Duplicate address
 * detection takes 1 to 3 s; without the delay, each pod would cost the API server two writes instead of one.
 */
const settling = { longestMs: 3_000, pollMs: 500 };
/** Number of conflicts with other writers after which a write counts as failed. */
const maxConflicts = 5;
/** Rate limit per claim: a burst, then one write every ten seconds. A pod can change its links at any rate. */
const perClaim = { burst: 6, everyMs: 10_000 };
/** Interval at which a write that waits for its turn checks for a removal, ms. */
const removalPollMs = 1_000;
/** Time after a writer's start by which the instance that this one replaces in a rolling update has ended, ms. */
const replacedMs = 120_000;
/** Number of consecutive failures that count as persistent; with the pauses between them, some 8 s. */
const persistentFailures = 5;

export type ClaimStatusApi = Pick<ResourceApi, 'readClaim' | 'patchClaimStatus'>;

export interface ClaimStatusWriterOptions extends EntryOwner {
  clock: Clock;
  logger: Logger;
  /** Returns numbers from 0 up to 1, for the pause after a conflict; default `Math.random`. */
  random?: () => number;
  /**
   * Called when a claim's status cannot be written, and repeated attempts or the kind of failure show that an operator must
   * intervene. Called once for each claim, and again only after its status was written.
   */
  onPersistentFailure?: (claim: ClaimIdentity, error: ClaimStatusError) => void;
  /** Called for each failed write, after it was logged. */
  onError?: (error: ClaimStatusError) => void;
}

interface StatusEntry {
  claim: ClaimIdentity;
  /** Entries to write; empty: removes the driver's entries. */
  wanted: DeviceStatus[];
  isRemoval: boolean;
  /** Whether the wanted state has not been tried yet. */
  isDue: boolean;
  /** Time at which the state is written although it is about to change, ms of the clock; `undefined`: at once. */
  settlesAtMs: number | undefined;
  /** Status as last read or written; `undefined` if it has to be read. */
  stored: StoredStatus | undefined;
  /** Whether an earlier instance of the driver may still write to the claim. */
  isContested: boolean;
  /** Last failure to write the status; `undefined` once the status is written. */
  failure: { kind: string; attempts: number; refusals: number; isReported: boolean } | undefined;
}

/**
 * Writes the state of the driver's devices to `status.devices` of their claim. Calls return at once; the writes follow, one
 * request at a time for each claim, and are retried until they succeed. Only the newest state is written. Nothing is written,
 * also after a restart, if the claim already has that state.
 */
export class ClaimStatusWriter implements AsyncDisposable {
  readonly #api: ClaimStatusApi;
  readonly #options: ClaimStatusWriterOptions;
  readonly #background = new Background();
  readonly #slots = new KeyedMutex(maxParallel);
  readonly #entries = new Map<string, StatusEntry>();
  /** Statuses of claims without an entry, as read during prepare, by UID. */
  readonly #noted = new Map<string, StoredStatus>();
  readonly #limit: RateLimit;
  readonly #aloneAtMs: number;

  constructor(api: ClaimStatusApi, options: ClaimStatusWriterOptions) {
    this.#api = api;
    this.#options = options;
    this.#limit = new RateLimit({ ...perClaim, clock: options.clock });
    this.#aloneAtMs = options.clock.nowMs() + replacedMs;
  }

  /**
   * Takes the status of a claim that was just read for its prepare, which saves the first write a read. If the claim changes in
   * between, the API server refuses the write, and the status is read.
   */
  note(claim: ClaimIdentity, object: ResourceClaim): void {
    if (!this.#entries.has(claim.uid)) this.#noted.set(claim.uid, toStoredStatus(claim, object));
  }

  /**
   * Sets the wanted state of a claim.
   * @param devices all of the driver's devices of the claim; its entries for other devices are removed. Devices that are not
   * allocated to the claim are left out
   * @param isSettled `false` if the state is about to change: it is held back for at most three seconds
   */
  set(claim: ClaimIdentity, devices: DeviceStatus[], isSettled = true): void {
    this.#want(claim, copyOf(devices), false, isSettled);
  }

  /** Removes the driver's entries from an unprepared claim, which may no longer exist. */
  remove(claim: ClaimIdentity): void {
    this.#want(claim, [], true, true);
  }

  /** Number of tracked claims: those with a wanted state, and those whose status is being written. */
  get size(): number {
    return this.#entries.size;
  }

  async [Symbol.asyncDispose]() {
    await this.#background[Symbol.asyncDispose]();
  }

  #want(claim: ClaimIdentity, wanted: DeviceStatus[], isRemoval: boolean, isSettled: boolean): void {
    if (this.#background.signal.aborted) return;
    // The noted status lacks what another instance of the driver has written since, which must be removed.
    const stored = isRemoval ? undefined : this.#noted.get(claim.uid);
    this.#noted.delete(claim.uid);
    const isContested = this.#options.clock.nowMs() < this.#aloneAtMs;
    const entry = this.#entries.get(claim.uid) ?? {
      claim,
      wanted,
      isRemoval,
      isDue: true,
      settlesAtMs: undefined,
      stored,
      isContested,
      failure: undefined,
    };
    if (entry.isContested && !isContested) entry.stored = undefined;
    entry.isContested = isContested;
    this.#entries.set(claim.uid, entry);
    entry.wanted = wanted;
    entry.isRemoval = isRemoval;
    entry.isDue = true;
    if (isSettled) entry.settlesAtMs = undefined;
    else entry.settlesAtMs ??= this.#options.clock.nowMs() + settling.longestMs;
    const { uid } = claim;
    const isDue = () => this.#entries.get(uid)?.isDue === true;
    void this.#background.run(uid, (signal) => this.#run(this.#entries.get(uid), signal), isDue);
  }

  /** Writes until no newer state is wanted. Never rejects. */
  async #run(entry: StatusEntry | undefined, signal: AbortSignal): Promise<void> {
    for (let isRetry = false; entry !== undefined && !signal.aborted; ) {
      // A retry already has a delay of its own.
      if (!isRetry) await this.#awaitTurn(entry, signal);
      isRetry = false;
      const { wanted } = entry;
      entry.isDue = false;
      try {
        await this.#slots.run('', () => this.#write(entry, wanted, signal));
        entry.failure = undefined;
      } catch (error) {
        if (signal.aborted) return;
        const isGone = error instanceof ClaimGone || isKubeError(error, 'api-not-found');
        if (isGone) return void this.#entries.delete(entry.claim.uid);
        const delayMs = this.#fail(entry, error);
        const isInVain = entry.isRemoval && (entry.failure?.attempts ?? 0) >= maxRemovalFailures;
        if (delayMs !== undefined && !isInVain) {
          await this.#options.clock.sleep(delayMs, signal).catch(() => undefined);
          isRetry = true;
          continue;
        }
      }
      // A newer state has replaced this one.
      if (entry.isDue) continue;
      if (entry.isRemoval) this.#entries.delete(entry.claim.uid);
      return;
    }
  }

  /**
   * Waits for the claim's rate limit, which does not apply to a removal. The wanted state may change meanwhile: only the
   * newest one is written.
   */
  async #awaitTurn(entry: StatusEntry, signal: AbortSignal): Promise<void> {
    const { uid } = entry.claim;
    const sleep = (ms: number) => this.#options.clock.sleep(ms, signal).catch(() => undefined);
    const isSettling = () => (entry.settlesAtMs ?? 0) > this.#options.clock.nowMs();
    while (isSettling() && !signal.aborted) await sleep(settling.pollMs);
    entry.settlesAtMs = undefined;
    while (!entry.isRemoval && !signal.aborted && !this.#limit.take(uid)) {
      await sleep(Math.min(this.#limit.waitMs(uid), removalPollMs));
    }
    if (!entry.isRemoval) return;
    await sleep(removalDelayMs);
    entry.stored = undefined;
  }

  /** Writes the entries once, with retries after conflicts. @throws ClaimStatusError `status-dropped`, ClaimGone, KubeError */
  async #write(entry: StatusEntry, devices: DeviceStatus[], signal: AbortSignal): Promise<void> {
    const { claim } = entry;
    const { driver, clock, logger, random = Math.random } = this.#options;
    const now = `${new Date().toISOString().slice(0, 19)}Z`;
    for (let conflicts = 1; ; conflicts++) {
      entry.stored ??= toStoredStatus(claim, await this.#api.readClaim(claim.namespace, claim.name, signal));
      const { stored } = entry;
      const wanted = devices
        .map((status) => toAllocatedStatus(driver, status, stored.devices ?? [], now))
        .filter((entry) => stored.allocated.some((each) => isOfSameDevice(each, entry)));
      const patch = statusPatch(stored, this.#options, wanted);
      if (patch.length === 0) return;
      // Reset first: after a lost response the claim must be read again.
      entry.stored = undefined;
      try {
        entry.stored = toStoredStatus(claim, await this.#api.patchClaimStatus(claim, patch, signal));
      } catch (error) {
        if (!isKubeError(error, 'api-conflict', 'api-invalid')) throw error;
        // The first conflict is most likely due to an outdated version from an earlier write; later ones are races.
        if (conflicts > 1) await clock.sleep(pauseMs(conflicts - 1, pauses.claimStatusConflict) * random(), signal);
        // Read again: an index that does not fit a newer list makes the patch invalid before the version is compared.
        entry.stored = toStoredStatus(claim, await this.#api.readClaim(claim.namespace, claim.name, signal));
        if (entry.stored.resourceVersion === stored.resourceVersion || conflicts === maxConflicts) throw error;
        continue;
      }
      const kept = entry.stored.devices?.filter((each) => isOf(this.#options, each)) ?? [];
      if (kept.length === 0 && wanted.length > 0) throw droppedError(claim);
      logger.debug({ claim: claimName(claim), devices: wanted.length }, 'wrote claim status');
      return;
    }
  }

  /** Logs and reports a failed write. @returns the delay before a retry, ms; `undefined` if a retry is useless */
  #fail(entry: StatusEntry, cause: unknown): number | undefined {
    const { driver, logger, onPersistentFailure, onError } = this.#options;
    const error = toStatusError(cause, claimName(entry.claim), driver);
    notify(logger, 'onError', onError, error);
    // An invalid claim does not affect others; any other failure most likely does.
    const kind = error.code === 'status-invalid' ? `${error.code} ${entry.claim.uid}` : error.code;
    // Logs each kind of failure once, until no claim has it any more.
    const isLogged = [...this.#entries.values()].some(({ failure }) => failure?.kind === kind);
    const fields = { claim: error.claim, err: error, reason: explain(error) };
    logger[isLogged ? 'debug' : 'warn'](fields, 'cannot write claim status');

    const isFinal = error.code === 'status-invalid' || error.code === 'status-dropped';
    const attempts = (entry.failure?.attempts ?? 0) + 1;
    // With the feature off in the cluster, every claim would be reported.
    const isPersistent = error.code !== 'status-dropped' && (isFinal || attempts >= persistentFailures);
    const isReported = entry.failure?.isReported ?? false;
    const isDue = isPersistent && !entry.isRemoval && !isReported;
    // Counts consecutive refusals: an API server that starts forbids some requests until it has read all roles.
    const refusals = error.code === 'status-forbidden' ? (entry.failure?.refusals ?? 0) + 1 : 0;
    entry.failure = { kind, attempts, refusals, isReported: isReported || isDue };
    if (isDue) notify(logger, 'onPersistentFailure', onPersistentFailure, entry.claim, error);

    if (isFinal) return undefined;
    const { claimStatus, claimStatusForbidden } = pauses;
    return refusals > 0
      ? retryPauseMs(cause, refusals - 1, claimStatusForbidden)
      : retryPauseMs(cause, attempts - 1, claimStatus);
  }
}

class ClaimGone extends Error {}

/** Returns the status to compare with. @throws ClaimGone if another claim has the name now */
function toStoredStatus({ uid }: ClaimIdentity, { metadata, status }: ResourceClaim): StoredStatus {
  if (metadata?.uid !== uid) throw new ClaimGone();
  const { resourceVersion = '' } = metadata;
  const allocated = status?.allocation?.devices?.results ?? [];
  return { resourceVersion, allocated, ...(status?.devices && { devices: status.devices }) };
}

function droppedError(claim: ClaimIdentity): ClaimStatusError {
  const message = `the API server did not keep the status of the devices of claim ${claimName(claim)}`;
  const hint =
    'the API server needs the feature gate DRAResourceClaimDeviceStatus, which is on by default since Kubernetes 1.33';
  return new ClaimStatusError('status-dropped', message, { claim: claimName(claim), hint });
}
