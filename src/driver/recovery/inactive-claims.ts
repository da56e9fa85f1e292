import { isKubeError, unlessMissing } from '../../framework/kube/index.ts';
import type { ClaimReader, KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import { type ClaimMetadata, claimName } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { failuresOf } from '../../lib/failures-of.ts';
import type { Logger } from '../../lib/logger.ts';
import { asOneError, StateError, type StoredClaim } from '../model/index.ts';
import type { SandboxRegistry } from '../sandbox/index.ts';
import type { StoredClaims } from '../state/index.ts';
import { eachByItself } from './each-by-itself.ts';

/** Number of sweeps before a claim is unprepared. A kubelet that knows the claim repeats a failed call before that. */
const sweepsForKubelet = 3;
/** Number of consecutive failures after which a claim, or the sweep as a whole, no longer requests rounds. */
const quickRepeats = 5;
/** Time for which a claim whose next pod waits requests checks, ms. The earlier pod's reservation usually ends within seconds. */
const passingMs = 60_000;
/** Time limit for one request to the API server, ms. */
const readTimeoutMs = 10_000;

export interface InactiveClaimsOptions {
  driver: string;
  /** Pool of this node's devices. */
  pool: string;
  store: StoredClaims;
  metadata: Pick<ClaimMetadata, 'isRecorded'>;
  sandboxes: Pick<SandboxRegistry, 'isFresh' | 'hasPod' | 'hasContainers'>;
  claims: ClaimReader;
  helper: Pick<KubeletPluginHelper, 'reclaim' | 'prepareAgain'>;
  /** Requests another round soon, for claims that have failed or cannot be judged yet: the next pod may be waiting for one. */
  requestRound: () => void;
  /** Requests a round in some seconds, for claims whose next pod waits for the end of a reservation. */
  requestCheck: () => void;
  /** Interval between regular sweeps, ms. */
  everyMs: number;
  clock: Clock;
  logger: Logger;
}

/**
 * Action for a claim: unprepare it (`give-up`), prepare it for the next pod (`hand-over`), or finish its interrupted prepare
 * (`complete`).
 */
type Verdict = ({ action: 'give-up'; reason: string } | { action: 'hand-over' | 'complete' }) & {
  /** Number of regular sweeps, {@link InactiveClaimsOptions.everyMs} apart, that must come to the same verdict. */
  sweeps: number;
};

/** The next pod has a sandbox here, but the API server still reserves the claim for the earlier pod, too. */
interface Passing {
  action: 'wait';
}

/** A verdict, and the time of the first of the consecutive sweeps that came to it. */
interface Sighting {
  action: (Verdict | Passing)['action'];
  sinceMs: number;
}

/**
 * Handles claims of pods without a container on the node. A sandbox alone proves nothing: a runtime that was killed while it
 * created a sandbox may list the remains long after the pod was deleted. So the API server is asked.
 *
 * - Unprepares claims that the API server no longer has, or that are no longer allocated to this node. After the kubelet lost
 * its state, or the node was out of the cluster for a while, nothing else would release their VFs. Waits first: a kubelet
 * that still knows a claim does not prepare it again for its next pod.
 * - Prepares claims again that are now reserved for another pod. The kubelet makes no call for a pod that takes over a
 * prepared claim: nothing else names that pod to the driver.
 * - Completes claims of pods on the node that are only partly prepared: the driver was killed, or failed, while it prepared a
 * claim that had been allocated again.
 */
export class InactiveClaims {
  readonly #options: InactiveClaimsOptions;
  /** Sightings of the last sweep, by UID of the claim. */
  #last = new Map<string, Sighting>();
  /** Numbers of consecutive failures, by UID of the claim; failures of whole sweeps under the key `sweep`. */
  readonly #failures = new Map<string, number>();

  constructor(options: InactiveClaimsOptions) {
    this.#options = options;
  }

  /**
   * Checks all claims. Does nothing while the runtime's list of sandboxes is out of date. Ends early if the API server does
   * not answer. After the first few failures, requests another round: a container may wait at its start gate for the claim.
   * @throws KubeError, StateError; failures of single claims after all claims were tried
   */
  async sweep(signal: AbortSignal): Promise<void> {
    const claims = this.#options.store.claims();
    const known = new Set(claims.map(({ identity }) => identity.uid));
    for (const uid of this.#failures.keys()) if (uid !== 'sweep' && !known.has(uid)) this.#failures.delete(uid);
    // A claim that this sweep does not reach starts over: its state may have changed and changed back since the earlier
    // sweep.
    const last = this.#last;
    this.#last = new Map();
    const concernsAll = (error: unknown) => isKubeError(error) || error instanceof StateError;
    const due: [StoredClaim, Verdict][] = [];
    // Claims are judged without their locks first, since most of them need nothing.
    const judging = eachByItself(
      claims,
      async (claim) => {
        const verdict = await this.#dueVerdictOn(claim, last.get(claim.identity.uid), signal);
        if (verdict !== undefined) due.push([claim, verdict]);
      },
      concernsAll,
    );
    const errors = await failuresOf([judging]);
    this.#ended('sweep', errors.length === 0);
    // Due claims are handled in parallel: other work may hold the lock of one claim for a minute.
    errors.push(...(await failuresOf(due.map(([claim, verdict]) => this.#handle(claim, verdict, signal)))));
    if (errors.length > 0) throw asOneError(errors);
  }

  /** Counts consecutive failures of a claim or of sweeps. Requests another round after the first few. */
  #ended(what: string, isDone: boolean): void {
    const failures = isDone ? 0 : (this.#failures.get(what) ?? 0) + 1;
    if (failures === 0) this.#failures.delete(what);
    else this.#failures.set(what, failures);
    if (failures > 0 && failures <= quickRepeats) this.#options.requestRound();
  }

  /** Judges a claim. @returns the verdict, if it has stood for the necessary number of sweeps */
  async #dueVerdictOn(
    claim: StoredClaim,
    last: Sighting | undefined,
    signal: AbortSignal,
  ): Promise<Verdict | undefined> {
    if (signal.aborted || !this.#options.sandboxes.isFresh) return undefined;
    const verdict = await this.#verdictOn(claim, signal);
    if (verdict === undefined) return undefined;
    const { action } = verdict;
    const { clock, everyMs } = this.#options;
    const sinceMs = last?.action === action ? last.sinceMs : clock.nowMs();
    this.#last.set(claim.identity.uid, { action, sinceMs });
    const forMs = clock.nowMs() - sinceMs;
    if (verdict.action !== 'wait') return forMs >= (verdict.sweeps - 1) * everyMs ? verdict : undefined;
    if (forMs < passingMs) this.#options.requestCheck();
    return undefined;
  }

  async #handle(claim: StoredClaim, verdict: Verdict, signal: AbortSignal): Promise<void> {
    const { helper, logger } = this.#options;
    const { action } = verdict;
    const { uid } = claim.identity;
    const log = { claim: claimName(claim.identity), claimUid: uid };
    let isDue = false;
    const isStill = async (turn: AbortSignal) => {
      const now = this.#options.store.claim(uid);
      isDue = now !== undefined && (await this.#verdictOn(now, turn))?.action === action;
      return isDue;
    };
    const isGivenUp = verdict.action === 'give-up';
    if (isGivenUp)
      logger.warn({ ...log, reason: verdict.reason }, 'unpreparing a claim that the kubelet will no longer unprepare');
    const work = isGivenUp
      ? helper.reclaim(claim.identity, isStill, signal)
      : helper.prepareAgain(claim.identity, isStill, signal);
    const isDone = await work.catch((error: unknown) => {
      this.#ended(uid, false);
      throw error;
    });
    this.#ended(uid, isDone || !isDue);
    if (!isDone || isGivenUp) return;
    this.#options.requestRound();
    if (verdict.action === 'complete') logger.warn(log, 'completed the interrupted preparation of a claim');
    else logger.info(log, 'handed a claim over to the next pod that it is reserved for');
  }

  async #verdictOn(claim: StoredClaim, signal: AbortSignal): Promise<Verdict | Passing | undefined> {
    const verdict = this.#isInUse(claim) ? undefined : await this.#judge(claim, signal);
    // A partly prepared claim is left to the kubelet, which repeats its call, until the pod has a sandbox.
    const isPartly =
      claim.state === 'preparing' || (claim.state === 'prepared' && !this.#options.metadata.isRecorded(claim.identity));
    const isStuck = isPartly && claim.podUids.some((uid) => this.#options.sandboxes.hasPod(uid));
    if (isStuck && (verdict === undefined || verdict.action === 'wait')) return { action: 'complete', sweeps: 1 };
    return verdict;
  }

  #isInUse({ podUids, devices }: StoredClaim): boolean {
    const { sandboxes } = this.#options;
    if (!sandboxes.isFresh) return true;
    const pods = [...podUids, ...devices.flatMap(({ attachment }) => attachment?.podUid ?? [])];
    const found = pods.map((uid) => sandboxes.hasContainers(uid));
    if (found.includes(true)) return true;
    if (!found.includes('maybe')) return false;
    this.#options.requestRound();
    return true;
  }

  /**
   * Judges an unused claim by its object in the API server. @throws KubeError if the API server does not answer: no verdict
   * is possible then
   */
  async #judge(
    { identity, devices, podUids, state }: StoredClaim,
    signal: AbortSignal,
  ): Promise<Verdict | Passing | undefined> {
    const { claims, driver, pool, clock, sandboxes } = this.#options;
    const { namespace, name, uid } = identity;
    using deadline = clock.deadline(readTimeoutMs, signal);
    const object = await unlessMissing(claims.readClaim(namespace, name, deadline.signal));
    const giveUp = (reason: string): Verdict => ({ action: 'give-up', reason, sweeps: sweepsForKubelet });
    if (object === undefined) return giveUp('it was deleted');
    if (object.metadata?.uid !== uid) return giveUp('another claim has its name now');
    const { allocation, reservedFor = [] } = object.status ?? {};
    if (allocation === undefined) return giveUp('it is not allocated any more');
    if (reservedFor.length === 0) return giveUp('it is not reserved for any pod');
    const results = (allocation.devices?.results ?? []).filter((each) => each.driver === driver && each.pool === pool);
    const names = devices.map((device) => device.name);
    // A prepare that was interrupted has given back the old devices, but has no new ones yet.
    const isCutShort = state !== 'prepared' && devices.length === 0;
    const isOurs = results.some(({ adminAccess, device }) => adminAccess || isCutShort || names.includes(device));
    const pods = reservedFor.filter(({ resource }) => resource === 'pods');
    const isKept = pods.length === 0 || pods.some((pod) => podUids.includes(pod.uid));
    if ((isKept || results.length === 0) && !isOurs) return giveUp('it has other devices now');
    const isNextHere = pods.some((pod) => !podUids.includes(pod.uid) && sandboxes.hasPod(pod.uid));
    // No event reports that the reservation for the earlier pod has ended.
    if (isKept) return isNextHere ? { action: 'wait' } : undefined;
    // The claim is handed over with its old devices, or with other devices of this node if it was allocated again in between.
    // A claim that is being prepared or unprepared is left to the kubelet at first. If the next pod already has a sandbox, it
    // is handed over at once: that pod might wait for a device that this claim still has.
    const isDue = state === 'prepared' || isNextHere;
    return { action: 'hand-over', sweeps: isDue ? 1 : sweepsForKubelet };
  }
}
