import type { Clock } from '../clock.ts';
import { isKubeError } from '../kube/index.ts';
import type { ClaimReader, KubeletPluginHelper } from '../kubeletplugin/index.ts';
import type { Logger } from '../logger.ts';
import type { ClaimMetadata } from '../metadata/index.ts';
import type { SandboxRegistry } from '../sandbox/index.ts';
import type { Store, StoredClaim } from '../state/index.ts';

/** In so many sweeps in a row: a kubelet that knows the claim repeats a call that failed sooner than that. */
const sweepsForKubelet = 3;
/** For one question to the API server: the sweep has many, and nobody waits for it. */
const readTimeoutMs = 10_000;

export interface InactiveClaimsOptions {
  driver: string;
  /** Pool of this node's devices. */
  pool: string;
  store: Pick<Store, 'claim' | 'claims'>;
  sandboxes: Pick<SandboxRegistry, 'isFresh' | 'hasPod' | 'mayHaveContainers'>;
  claims: ClaimReader;
  metadata: Pick<ClaimMetadata, 'covers'>;
  helper: Pick<KubeletPluginHelper, 'reclaim' | 'prepareAgain'>;
  /** Called after a claim was prepared for another pod. */
  onHandedOver: () => void;
  clock: Clock;
  logger: Logger;
}

/** What is to be done about a claim: give it up, or prepare it for the next pod. */
type Verdict = ({ action: 'give-up'; reason: string } | { action: 'hand-over' }) & {
  /** In how many sweeps in a row that has to be the verdict. */
  sweeps: number;
};

/**
 * Claims none of whose pods has a container on the node. A sandbox alone proves nothing: a runtime that was killed while it
 * made one may list what is left of it long after its pod was deleted. So the API server is asked.
 *
 * Those that the API server has no longer, or not for this node, are unprepared: no kubelet will ask for it. A kubelet that
 * lost its own state, or a node that was taken out of the cluster for a while, would otherwise keep their VFs for ever. Not at
 * once: a kubelet that still holds a claim makes no call for the next pod that gets it.
 *
 * Those that are reserved for other pods by now are prepared for the next one. The kubelet makes no call for a pod that
 * takes over a claim which is prepared, so nothing else names that pod to the driver.
 *
 * And claims of pods on the node that are not prepared, or whose metadata is about other devices: the driver was ended, or
 * failed, while it did the latter for a claim that had been allocated anew.
 */
export class InactiveClaims {
  readonly #options: InactiveClaimsOptions;
  /** By UID: in how many sweeps in a row there has been a verdict on a claim. */
  readonly #sweeps = new Map<string, number>();

  constructor(options: InactiveClaimsOptions) {
    this.#options = options;
  }

  /** Does nothing while it is not known which sandboxes there are. An API server that does not answer ends the sweep. */
  async sweep(signal: AbortSignal): Promise<void> {
    const { store, helper, logger } = this.#options;
    const claims = store.claims();
    const known = new Set(claims.map(({ identity }) => identity.uid));
    for (const uid of this.#sweeps.keys()) if (!known.has(uid)) this.#sweeps.delete(uid);
    for (const claim of claims) {
      if (signal.aborted || !this.#options.sandboxes.isFresh) return;
      // First without its turn, which is not to be taken for nothing.
      const verdict = this.#isInUse(claim) ? undefined : await this.#judge(claim, signal);
      const { uid, namespace, name } = claim.identity;
      if (verdict === undefined) {
        this.#sweeps.delete(uid);
        await this.#complete(claim, signal);
        continue;
      }
      const sweeps = (this.#sweeps.get(uid) ?? 0) + 1;
      this.#sweeps.set(uid, sweeps);
      if (sweeps < verdict.sweeps) continue;
      const log = { claim: `${namespace}/${name}`, claimUid: uid };
      const isStill = async (turn: AbortSignal) => (await this.#judgeAgain(uid, turn))?.action === verdict.action;
      if (verdict.action === 'hand-over') {
        if (!(await helper.prepareAgain(claim.identity, isStill, signal))) continue;
        logger.info(log, 'claim passes to the next pod that it is reserved for');
        this.#options.onHandedOver();
      } else {
        logger.warn({ ...log, reason: verdict.reason }, 'claim unprepared: no kubelet will ask for it');
        await helper.reclaim(claim.identity, isStill, signal);
      }
    }
  }

  async #complete({ identity, podUids }: StoredClaim, signal: AbortSignal): Promise<void> {
    const { store, sandboxes, metadata, helper, logger } = this.#options;
    // Until its pod has got a sandbox, the kubelet repeats its call.
    if (!podUids.some((uid) => sandboxes.hasPod(uid))) return;
    const isDue = async () => {
      const claim = store.claim(identity.uid);
      if (claim?.state === 'preparing') return claim.podUids.some((uid) => sandboxes.hasPod(uid));
      return claim?.state === 'prepared' && !(await metadata.covers(identity, claim.devices));
    };
    if (!(await isDue()) || !(await helper.prepareAgain(identity, isDue, signal))) return;
    const log = { claim: `${identity.namespace}/${identity.name}`, claimUid: identity.uid };
    logger.warn(log, 'claim prepared again: that was not completed before');
    this.#options.onHandedOver();
  }

  async #judgeAgain(uid: string, signal: AbortSignal): Promise<Verdict | undefined> {
    const claim = this.#options.store.claim(uid);
    return claim === undefined || this.#isInUse(claim) ? undefined : await this.#judge(claim, signal);
  }

  #isInUse({ podUids, devices }: StoredClaim): boolean {
    const { sandboxes } = this.#options;
    const pods = [...podUids, ...devices.flatMap(({ attachment }) => attachment?.podUid ?? [])];
    return !sandboxes.isFresh || pods.some((uid) => sandboxes.mayHaveContainers(uid));
  }

  /** @throws KubeError if the API server does not say: then nothing may be concluded */
  async #judge({ identity, devices, podUids, state }: StoredClaim, signal: AbortSignal): Promise<Verdict | undefined> {
    const { claims, driver, pool, clock } = this.#options;
    const { namespace, name, uid } = identity;
    using deadline = clock.deadline(readTimeoutMs, signal);
    const object = await claims.readClaim(namespace, name, deadline.signal).catch((error: unknown) => {
      if (isKubeError(error, 'api-not-found')) return undefined;
      throw error;
    });
    const giveUp = (reason: string): Verdict => ({ action: 'give-up', reason, sweeps: sweepsForKubelet });
    if (object === undefined) return giveUp('it was deleted');
    if (object.metadata?.uid !== uid) return giveUp('there is another one of its name');
    const { allocation, reservedFor = [] } = object.status ?? {};
    if (allocation === undefined) return giveUp('it is not allocated any more');
    if (reservedFor.length === 0) return giveUp('it is not reserved for anybody');
    const results = (allocation.devices?.results ?? []).filter((result) => {
      return result.driver === driver && result.pool === pool;
    });
    const isOurs = results.some((result) => {
      return result.adminAccess === true || devices.some(({ name: own }) => own === result.device);
    });
    const pods = reservedFor.filter(({ resource }) => resource === 'pods');
    const isKept = pods.length === 0 || pods.some((pod) => podUids.includes(pod.uid));
    if (isKept || results.length === 0) return isOurs ? undefined : giveUp('it has other devices now');
    // With its old devices or, if it was allocated anew between the two pods, with others of this node. What is being prepared
    // or unprepared, the kubelet goes on with, unless it has made a sandbox for the next pod. If it does not, that pod may be
    // waiting for a device which this claim still holds.
    const isDue = state === 'prepared' || pods.some((pod) => this.#options.sandboxes.hasPod(pod.uid));
    return { action: 'hand-over', sweeps: isDue ? 1 : sweepsForKubelet };
  }
}
