import type { Clock } from '../clock.ts';
import { explain } from '../errors.ts';
import { type AllocatedDeviceStatus, isKubeError, type ResourceClaim } from '../kube/index.ts';
import type { Logger } from '../logger.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import { type DeviceStatus, isTold, toAllocatedStatus } from './device-status.ts';
import { ClaimStatusError, toStatusError } from './errors.ts';
import { Slots } from './slots.ts';
import type { ClaimStatusApi } from './status-api.ts';

/** Status is for people who look; requests of the kubelet's calls come first. */
const maxParallel = 4;
const retryMs = { first: 500, last: 30_000, forbidden: 300_000 };
/** A claim that is unprepared mostly goes soon after, and its status with it. */
const maxRemovalFailures = 8;

export interface ClaimStatusWriterOptions {
  driver: string;
  clock: Clock;
  logger: Logger;
  /** Gets what keeps claims from telling the truth, each kind once until it works again. All are logged already. */
  onError?: (error: ClaimStatusError) => void;
}

/** What one claim shall tell. */
interface Entry {
  claim: ClaimIdentity;
  /** None: nothing any more, and then the entry goes. */
  wanted: DeviceStatus[];
  isRemoval: boolean;
  /** What the driver's entries are like in the API server; `undefined` until they were read. */
  known: AllocatedDeviceStatus[] | undefined;
  running: Promise<void> | undefined;
}

/**
 * Tells in `status.devices` of claims what their devices are like. Calls return at once; the writing happens later, one
 * request at a time for a claim, and is tried again until it works. Only the newest state counts. What is there already
 * is not written again, after a restart neither.
 */
export class ClaimStatusWriter implements AsyncDisposable {
  readonly #api: ClaimStatusApi;
  readonly #options: ClaimStatusWriterOptions;
  readonly #stop = new AbortController();
  readonly #slots = new Slots(maxParallel);
  readonly #entries = new Map<string, Entry>();
  /** Kinds of errors that were reported. */
  readonly #reported = new Set<string>();

  constructor(api: ClaimStatusApi, options: ClaimStatusWriterOptions) {
    this.#api = api;
    this.#options = options;
  }

  /** @param devices all of the driver's devices of the claim; entries of others go */
  set(claim: ClaimIdentity, devices: DeviceStatus[]): void {
    this.#want(claim, structuredClone(devices), false);
  }

  /** For a claim that is unprepared. It need not be there any more. */
  remove(claim: ClaimIdentity): void {
    this.#want(claim, [], true);
  }

  /** How many claims are remembered: those that were set and not removed, and those under way. */
  get size(): number {
    return this.#entries.size;
  }

  /** What was not written yet stays unwritten. */
  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await Promise.all([...this.#entries.values()].map(({ running }) => running));
  }

  #want(claim: ClaimIdentity, wanted: DeviceStatus[], isRemoval: boolean): void {
    if (this.#stop.signal.aborted) return;
    const entry = this.#entries.get(claim.uid) ?? {
      ...{ claim, wanted, isRemoval, known: undefined, running: undefined },
    };
    this.#entries.set(claim.uid, entry);
    entry.wanted = wanted;
    entry.isRemoval = isRemoval;
    entry.running ??= this.#run(entry).finally(() => {
      entry.running = undefined;
    });
  }

  /** Writes until nothing newer is wanted. Never rejects. */
  async #run(entry: Entry): Promise<void> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted; ) {
      const { wanted } = entry;
      try {
        await this.#slots.run(() => this.#tell(entry, wanted, signal));
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        if (isGone(error)) return this.#forget(entry);
        const delayMs = this.#retryDelay(error, entry, failures++);
        const isInVain = entry.isRemoval && failures >= maxRemovalFailures;
        if (delayMs !== undefined && !isInVain) {
          await this.#options.clock.sleep(delayMs, signal).catch(() => undefined);
          continue;
        }
      }
      // A newer state has replaced the list.
      if (entry.wanted !== wanted) continue;
      if (entry.isRemoval) this.#forget(entry);
      return;
    }
  }

  async #tell(entry: Entry, devices: DeviceStatus[], signal: AbortSignal): Promise<void> {
    const { claim } = entry;
    const { driver, logger } = this.#options;
    entry.known ??= this.#entriesOf(claim, await this.#api.read(claim, signal));
    const now = `${new Date().toISOString().slice(0, 19)}Z`;
    const known = entry.known;
    const wanted = devices.map((status) => toAllocatedStatus(driver, status, known, now));
    if (isTold(known, wanted)) return;
    // If the answer is lost, what is there is not known.
    entry.known = undefined;
    const stored = this.#entriesOf(claim, await this.#api.apply(claim, wanted, signal));
    entry.known = stored;
    if (stored.length < wanted.length) return this.#reportDropped(claim);
    this.#reported.clear();
    logger.debug({ claim: subject(claim), devices: wanted.length }, 'claim status written');
  }

  /** @throws ClaimGone if it is another claim of the same name */
  #entriesOf(claim: ClaimIdentity, { metadata, status }: ResourceClaim): AllocatedDeviceStatus[] {
    if (metadata?.uid !== claim.uid) throw new ClaimGone();
    return (status?.devices ?? []).filter(({ driver }) => driver === this.#options.driver);
  }

  /** @returns `undefined`: it is of no use to try again */
  #retryDelay(cause: unknown, { claim }: Entry, failures: number): number | undefined {
    const error = toStatusError(cause, subject(claim), this.#options.driver);
    this.#report(error);
    if (error.code === 'status-invalid') return undefined;
    const last = error.code === 'status-forbidden' ? retryMs.forbidden : retryMs.last;
    const askedMs = isKubeError(cause) ? (cause.retryAfterMs ?? 0) : 0;
    return Math.max(askedMs, Math.min(retryMs.first * 2 ** Math.min(failures, 20), last));
  }

  #reportDropped(claim: ClaimIdentity): void {
    const message = `the API server did not keep the status of the devices of claim ${subject(claim)}`;
    const hint = 'Kubernetes 1.33 or newer has it; the feature gate is DRAResourceClaimDeviceStatus';
    this.#report(new ClaimStatusError('status-dropped', message, { claim: subject(claim), hint }));
  }

  #report(error: ClaimStatusError): void {
    const { logger, onError } = this.#options;
    // What is wrong with one claim is its own matter; the rest is most likely the same for all.
    const kind = error.code === 'status-invalid' ? explain(error) : error.code;
    const fields = { claim: error.claim, err: error, reason: explain(error) };
    if (this.#reported.has(kind)) {
      logger.debug(fields, 'claim status not written');
      return;
    }
    this.#reported.add(kind);
    logger.warn(fields, 'claim status not written');
    onError?.(error);
  }

  #forget(entry: Entry): void {
    this.#entries.delete(entry.claim.uid);
  }
}

class ClaimGone extends Error {}

function isGone(error: unknown): boolean {
  // The UID is a precondition: the only conflict that an apply by force can have.
  return error instanceof ClaimGone || isKubeError(error, 'api-not-found') || isUidConflict(error);
}

function isUidConflict(error: unknown): boolean {
  return isKubeError(error, 'api-conflict') && /\bUID\b/i.test(error.message);
}

function subject({ namespace, name }: ClaimIdentity): string {
  return `${namespace}/${name}`;
}
