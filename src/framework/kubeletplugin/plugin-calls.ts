import { abortable, onAbort } from '../../lib/abort.ts';
import type { Clock } from '../../lib/clock.ts';
import { explain, toError } from '../../lib/errors.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { notify } from '../../lib/notify.ts';
import { type ClaimIdentity, claimKey, claimName } from '../metadata/index.ts';
import { type ClaimReader, fetchClaims } from './claims.ts';
import type { CallContext, WireDevice } from './dra-service.ts';
import { checkResults, hasSucceeded, preparedIn, type Results, runLastStep, unpreparedIn } from './driver-answers.ts';
import { KubeletPluginError } from './errors.ts';
import { noRecords } from './no-records.ts';
import type { AllocatedClaim, DraPlugin, PrepareResult } from './plugin.ts';
import { type ResolvedClaim, resolvePreparedClaim } from './prepared-claim.ts';
import type { MetadataFiles } from './shared-files.ts';
import { toWire } from './wire-devices.ts';

/** Time limit of a call, ms. The kubelet waits 45 s for an answer; a limit below that lets the user see this driver's error. */
const longestCallMs = 42_000;
/** Share of the kubelet's timeout after which a call is answered, if that is shorter than the limit. */
const shareOfTimeout = 14 / 15;
/** Number of calls that may wait; the kubelet retries refused ones. A node has some hundred pods. */
const maxWaiting = 1_000;
/** Key of the lock for calls that run one at a time. No claim has this key. */
const allCalls = 'all';

export interface PluginCallsOptions {
  driver: string;
  claims: ClaimReader;
  /** Metadata files and CDI specs of claims; `undefined`: device metadata is off. */
  metadata: MetadataFiles | undefined;
  /** Locks of claims, by `claimKey`, held while a call works on them. */
  locks: Locks;
  /** Lock of calls that run one at a time. Absent: a call waits only for other calls about the same claim. */
  turns?: Locks;
  clock: Clock;
  logger: Logger;
  /** See `KubeletPluginOptions`. */
  onMetadataError?: (error: Error) => void;
}

interface CallFacts {
  requestId: number;
  method: string;
}

/** Current step of a call, for the error when time is up. */
interface Progress {
  step: 'reads its claims' | 'waits for its turn' | 'is at work';
}

interface Signals {
  /** Aborts when the caller cancels the call, or when time is up. */
  call: AbortSignal;
  /** Aborts only when time is up. */
  work: AbortSignal;
}

/** Calls of the kubelet, and the same calls made by the driver. Answers are by claim UID; an exception fails a whole call. */
export class PluginCalls {
  readonly #plugin: DraPlugin;
  readonly #options: PluginCallsOptions;
  readonly #stopping = new AbortController();
  /** IDs of the calls that last prepared a claim, by the claim's UID. */
  readonly #preparedBy = new Map<string, number>();
  #lastRequestId = 0;

  constructor(plugin: DraPlugin, options: PluginCallsOptions) {
    this.#plugin = plugin;
    this.#options = options;
  }

  /** Aborts the driver's work and waiting calls. */
  abort(): void {
    this.#stopping.abort(new Error('the driver is stopping'));
  }

  async nodePrepareResources(claims: ClaimIdentity[], context: CallContext) {
    const refs = unique(claims);
    return await this.#call('NodePrepareResources', refs, context, async (facts, { call, work }, progress) => {
      // Fetched before the call waits for its turn, so that a slow API server does not delay other calls.
      const claims = await failWith('get resource claims', () => fetchClaims(this.#options, refs, call));
      return await this.#inTurn(refs, call, progress, () => this.#prepare(facts, claims, work));
    });
  }

  /**
   * Prepares a claim without a call from the kubelet.
   * @param isDue called with the claim's lock held
   * @returns whether the claim was prepared
   */
  async prepareAgain(claim: ClaimIdentity, isDue: (signal: AbortSignal) => Promise<boolean>, signal: AbortSignal) {
    return await this.#call('prepareAgain', [claim], ownContext(signal), (facts, { call, work }, progress) =>
      this.#inTurn([claim], call, progress, async () => {
        if (!(await isDue(call))) return false;
        const answers = await this.#prepare(facts, await fetchClaims(this.#options, [claim], call), work);
        return isDone(answers.get(claim.uid));
      }),
    );
  }

  async nodeUnprepareResources(claims: ClaimIdentity[], context: CallContext) {
    const refs = unique(claims);
    return await this.#call('NodeUnprepareResources', refs, context, (facts, { call, work }, progress) =>
      this.#inTurn(refs, call, progress, async () => {
        const due = refs.filter((claim) => !this.#isOvertaken(facts, claim));
        const answers = due.length === 0 ? undefined : await this.#unprepare(facts, due, work);
        return new Map(refs.map(({ uid }) => [uid, answers?.get(uid) ?? {}]));
      }),
    );
  }

  /**
   * Unprepares a claim without a call from the kubelet.
   * @param isOver called with the claim's lock held
   * @returns whether the claim was unprepared
   */
  async reclaim(claim: ClaimIdentity, isOver: (signal: AbortSignal) => Promise<boolean>, signal: AbortSignal) {
    return await this.#call('reclaim', [claim], ownContext(signal), (facts, { call, work }, progress) =>
      this.#inTurn([claim], call, progress, async () => {
        if (!(await isOver(call))) return false;
        return isDone((await this.#unprepare(facts, [claim], work)).get(claim.uid));
      }),
    );
  }

  async #prepare(facts: CallFacts, claims: AllocatedClaim[], signal: AbortSignal) {
    const results = await failWith('prepare resource claims', async () =>
      checkResults(await this.#plugin.prepareResourceClaims(claims, { signal })),
    );
    const refs = claims.map(({ identity }) => identity);
    this.#reportUnexpected(facts, refs, results);
    const laid = await this.#writeFiles(claims, results);
    return await answerEach(refs, async (claim) => {
      const devices: WireDevice[] = [];
      const error = await this.#logged(facts, claim, 'prepared', async () => {
        const answer = laid.get(claim.uid);
        if (!Array.isArray(answer)) throw answer;
        devices.push(...answer);
        this.#preparedBy.set(claim.uid, facts.requestId);
        return { devices: devices.length };
      });
      return { devices, ...error };
    });
  }

  async #unprepare(facts: CallFacts, refs: ClaimIdentity[], signal: AbortSignal) {
    const results = await failWith('unprepare resource claims', async () =>
      checkResults(await this.#plugin.unprepareResourceClaims(refs, { signal })),
    );
    this.#reportUnexpected(facts, refs, results);
    const { metadata = noRecords } = this.#options;
    const over = refs.filter((claim) => hasSucceeded(results, claim));
    const left = await metadata.unprepareAll(
      over.map((claim) => ({ claim, discard: () => runLastStep(claim, unpreparedIn(results, claim), 'discard') })),
    );
    return await answerEach(refs, (claim) =>
      this.#logged(facts, claim, 'unprepared', async () => {
        unpreparedIn(results, claim);
        await failWith('clean up device metadata', async () => {
          const cause = left.get(claim.uid);
          if (cause !== undefined) throw cause;
        });
        this.#preparedBy.delete(claim.uid);
        return {};
      }),
    );
  }

  /**
   * Returns whether a later call prepared the claim while this one waited for its turn. The kubelet may have two calls to
   * unprepare a claim under way, from a pod's worker and from its own reconciliation, and prepares the claim again when one of
   * them is answered.
   */
  #isOvertaken(facts: CallFacts, claim: ClaimIdentity): boolean {
    if ((this.#preparedBy.get(claim.uid) ?? 0) < facts.requestId) return false;
    const log = { ...facts, claim: claimName(claim), claimUid: claim.uid };
    this.#options.logger.warn(log, 'did not unprepare a claim: a later call has prepared it again');
    return true;
  }

  async #inTurn<T>(
    claims: ClaimIdentity[],
    signal: AbortSignal,
    progress: Progress,
    task: () => Promise<T>,
  ): Promise<T> {
    const { locks, turns } = this.#options;
    if (Math.max(locks.waiting, turns?.waiting ?? 0) >= maxWaiting)
      throw aborted(`too many calls: ${maxWaiting} are waiting already`);
    progress.step = 'waits for its turn';
    using held = new DisposableStack();
    try {
      if (turns !== undefined) held.use(await turns.acquireAll([allCalls], signal));
      held.use(await locks.acquireAll(claims.map(claimKey), signal));
    } catch (cause) {
      throw signal.aborted ? stillWaiting(cause) : new Error('serialize gRPC: lock file', { cause });
    }
    progress.step = 'is at work';
    return await task();
  }

  /**
   * Runs a call within its time limit. `task` gets two signals. `call` aborts when the caller cancels. `work`, which is for the
   * driver, does not: the driver should finish what it began, and the kubelet's next call finds the result. If a driver ignores
   * the signal, the call is answered without it, and the driver keeps the lock until it ends.
   */
  async #call<T>(
    method: string,
    claims: ClaimIdentity[],
    { timeoutMs, signal }: CallContext,
    task: (facts: CallFacts, signals: Signals, progress: Progress) => Promise<T>,
  ): Promise<T> {
    const { clock, logger } = this.#options;
    const facts = { requestId: ++this.#lastRequestId, method };
    const startMs = clock.nowMs();
    using deadline = clock.deadline(Math.min(longestCallMs, timeoutMs * shareOfTimeout), this.#stopping.signal);
    const work = deadline.signal;
    // Not AbortSignal.any, which takes several times as long.
    const call = new AbortController();
    using _ended = onAbort(work, () => call.abort(work.reason));
    using _gone = onAbort(signal, () => call.abort(signal.reason));
    logger.debug({ ...facts, claims: claims.map(claimName) }, 'call from the kubelet');
    try {
      const progress: Progress = { step: 'reads its claims' };
      const running = task(facts, { call: call.signal, work }, progress);
      const answer = await abortable(running, work, () => tooLate(method, progress, work.reason));
      logger.debug({ ...facts, ms: clock.nowMs() - startMs }, 'answered a call of the kubelet');
      return answer;
    } catch (error) {
      logger.error({ ...facts, claims: claims.map(claimName), err: error }, 'call of the kubelet failed');
      throw error;
    }
  }

  /**
   * Logs the outcome for a claim. @param task returns further fields for the log @returns the failure to report to the kubelet
   */
  async #logged(
    facts: CallFacts,
    claim: ClaimIdentity,
    done: 'prepared' | 'unprepared',
    task: () => Promise<object>,
  ): Promise<{ error?: string }> {
    const log = { ...facts, claim: claimName(claim), claimUid: claim.uid };
    try {
      this.#options.logger.info({ ...log, ...(await task()) }, `${done} a claim`);
      return {};
    } catch (error) {
      this.#options.logger.error({ ...log, err: error }, `claim cannot be ${done}`);
      return { error: explain(error) };
    }
  }

  /**
   * Writes CDI specs and the metadata known so far. @returns by UID: the answer for a claim, or the error with which it failed
   */
  async #writeFiles(claims: AllocatedClaim[], results: Results<PrepareResult>) {
    const { metadata = noRecords, driver, logger, onMetadataError } = this.#options;
    const answers = new Map<string, WireDevice[] | Error>();
    const prepared: ResolvedClaim[] = [];
    for (const claim of claims) {
      try {
        prepared.push(resolvePreparedClaim(driver, claim, preparedIn(results, claim)));
      } catch (error) {
        answers.set(claim.identity.uid, toError(error));
      }
    }
    const laid = await metadata.prepareAll(prepared);
    for (const { record, devices } of prepared) {
      const { uid } = record.claim;
      const ids = laid.get(uid);
      if (ids instanceof Map) {
        answers.set(
          uid,
          devices.flatMap((device) => toWire(device, ids)),
        );
        continue;
      }
      const error = toError(ids);
      answers.set(uid, error);
      notify(logger, 'onMetadataError', onMetadataError, error);
    }
    return answers;
  }

  /**
   * Logs results for claims that the call did not name: a bug in the driver, for which the kubelet would refuse the whole call.
   */
  #reportUnexpected(facts: CallFacts, claims: ClaimIdentity[], results: Results<unknown>): void {
    const unexpectedClaims = [...results.keys()].filter((uid) => !claims.some((claim) => claim.uid === uid));
    if (unexpectedClaims.length === 0) return;
    this.#options.logger.warn(
      { ...facts, claimUids: unexpectedClaims },
      'the driver returned results for claims that the call did not name',
    );
  }
}

/** Removes repeated claims of a call, which get a single answer. Claims are equal if namespace, name and UID are. */
function unique(claims: ClaimIdentity[]): ClaimIdentity[] {
  return [...new Map(claims.map((claim) => [JSON.stringify([claimName(claim), claim.uid]), claim])).values()];
}

/** Returns the context of the driver's own calls, with the kubelet's time limit. */
function ownContext(signal: AbortSignal): CallContext {
  return { timeoutMs: longestCallMs / shareOfTimeout, signal };
}

function isDone(answer: { error?: string } | undefined): boolean {
  return answer !== undefined && answer.error === undefined;
}

/** Returns exactly one answer for each claim, by UID; writes the claims' files concurrently. */
async function answerEach<T>(
  claims: ClaimIdentity[],
  answer: (claim: ClaimIdentity, index: number) => Promise<T>,
): Promise<Map<string, T>> {
  const answers = await Promise.all(claims.map(answer));
  return new Map(claims.map(({ uid }, index) => [uid, answers[index]!]));
}

/**
 * Returns the error of a call that ran out of time. The error says whether the call was still waiting, because another one
 * hangs.
 */
function tooLate(method: string, { step }: Progress, cause: unknown): KubeletPluginError {
  if (step === 'waits for its turn') return stillWaiting(cause);
  const more = step === 'reads its claims' ? ', while it read its claims from the API server' : '';
  return aborted(`${method} did not end in time${more}`, cause);
}

function stillWaiting(cause: unknown): KubeletPluginError {
  const message =
    'serialize gRPC: other calls, or other work on the claim, have not ended, perhaps in another instance';
  return aborted(message, cause);
}

function aborted(message: string, cause?: unknown): KubeletPluginError {
  return new KubeletPluginError('call-aborted', message, { cause, retriable: true });
}

/** Runs a step of a call. Prefixes its error, in the Go helper's words. */
async function failWith<T>(step: string, task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    throw new Error(step, { cause: error });
  }
}
