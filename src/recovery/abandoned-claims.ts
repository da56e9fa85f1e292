import type { Store, StoredClaim } from '../driver/index.ts';
import { isKubeError } from '../kube/index.ts';
import type { ClaimReader, KubeletPluginHelper } from '../kubeletplugin/index.ts';
import type { Logger } from '../logger.ts';
import type { KnownSandboxes } from '../sandbox/index.ts';

/** For one question to the API server: the sweep has many, and nobody waits for it. */
const readTimeoutMs = 10_000;

export interface AbandonedClaimsOptions {
  driver: string;
  /** Pool of this node's devices. */
  pool: string;
  store: Pick<Store, 'claim' | 'claims'>;
  known: Pick<KnownSandboxes, 'isFresh' | 'has' | 'hasPod'>;
  claims: ClaimReader;
  helper: Pick<KubeletPluginHelper, 'reclaim'>;
  logger: Logger;
}

/**
 * Unprepares claims that no kubelet will ask for any more: the API server has them no longer, or not for this node, and
 * none of their pods is alive. A kubelet that lost its own state, or a node that was taken out of the cluster for a
 * while, would otherwise keep their VFs for ever.
 */
export class AbandonedClaims {
  readonly #options: AbandonedClaimsOptions;

  constructor(options: AbandonedClaimsOptions) {
    this.#options = options;
  }

  /** Does nothing while it is not known which sandboxes there are. An API server that does not answer ends the sweep. */
  async sweep(signal: AbortSignal): Promise<void> {
    const { store, helper, logger } = this.#options;
    for (const claim of store.claims()) {
      if (signal.aborted || !this.#options.known.isFresh) return;
      if (this.#isAlive(claim)) continue;
      // First without its turn, which is not to be taken for nothing.
      const reason = await this.#reasonToEnd(claim, signal);
      if (reason === undefined) continue;
      const { uid, namespace, name } = claim.identity;
      logger.warn(
        { claim: `${namespace}/${name}`, claimUid: uid, reason },
        'claim is given up: nobody will unprepare it',
      );
      await helper.reclaim(claim.identity, (turn) => this.#isOver(uid, turn), signal);
    }
  }

  async #isOver(uid: string, signal: AbortSignal): Promise<boolean> {
    const claim = this.#options.store.claim(uid);
    if (claim === undefined || this.#isAlive(claim)) return false;
    return (await this.#reasonToEnd(claim, signal)) !== undefined;
  }

  #isAlive({ podUids, devices }: StoredClaim): boolean {
    const { known } = this.#options;
    const isIn = (sandboxId: string | undefined) => sandboxId !== undefined && known.has(sandboxId);
    return (
      !known.isFresh || podUids.some((uid) => known.hasPod(uid)) || devices.some((d) => isIn(d.attachment?.sandboxId))
    );
  }

  /** @throws KubeError if the API server does not say: then nothing may be concluded */
  async #reasonToEnd({ identity, devices }: StoredClaim, signal: AbortSignal): Promise<string | undefined> {
    const { claims, driver, pool } = this.#options;
    const { namespace, name, uid } = identity;
    const timeout = AbortSignal.any([signal, AbortSignal.timeout(readTimeoutMs)]);
    const object = await claims.readClaim(namespace, name, timeout).catch((error: unknown) => {
      if (isKubeError(error, 'api-not-found')) return undefined;
      throw error;
    });
    if (object === undefined) return 'it was deleted';
    if (object.metadata?.uid !== uid) return 'there is another one of its name';
    const { allocation, reservedFor = [] } = object.status ?? {};
    if (allocation === undefined) return 'it is not allocated any more';
    if (reservedFor.length === 0) return 'it is not reserved for anybody';
    const results = allocation.devices?.results ?? [];
    const isOurs = results.some(
      (result) =>
        result.driver === driver && result.pool === pool && devices.some(({ name: own }) => own === result.device),
    );
    return isOurs ? undefined : 'it has other devices now';
  }
}
