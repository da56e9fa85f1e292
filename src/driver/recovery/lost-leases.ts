import { isKubeError, unlessMissing } from '../../framework/kube/index.ts';
import type { ClaimReader, KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import type { Logger } from '../../lib/logger.ts';
import type { AddressAllocator } from '../addresses/index.ts';
import { fingerprintOf } from '../claims/index.ts';
import { asOneError, StateError, type StoredClaim } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';

/** Number of sweeps in which all claims have their turn. */
const sweepsOfAll = 5;

export interface LostLeasesOptions {
  driver: string;
  store: StoredClaims;
  addressPools: { areLeased: AddressAllocator['areLeased'] };
  claims: ClaimReader;
  helper: { prepareAgain: KubeletPluginHelper['prepareAgain'] };
  logger: Logger;
}

/**
 * Creates lost leases of pool addresses again, for example after someone has deleted their CustomResourceDefinition:
 * otherwise another key could get the address of a running pod. A sweep ends when it has found the leases of a fifth of the
 * claims intact; the next sweep goes on from there.
 */
export class LostLeases {
  readonly #options: LostLeasesOptions;
  #next = 0;

  constructor(options: LostLeasesOptions) {
    this.#options = options;
  }

  /**
   * Runs one sweep. Does nothing while the cluster has no address pools. An API server that does not answer ends the sweep.
   * @throws KubeError, StateError; failures of single claims, after all were tried
   */
  async sweep(signal: AbortSignal): Promise<void> {
    const { store, helper, logger } = this.#options;
    const hasPool = ({ devices }: StoredClaim) => devices.some(({ config }) => config.addressPool !== undefined);
    const claims = store.claims().filter((claim) => claim.state === 'prepared' && hasPool(claim));
    const errors: unknown[] = [];
    let toCheck = Math.ceil(claims.length / sweepsOfAll);
    for (let count = 0; count < claims.length && toCheck > 0 && !signal.aborted; count++) {
      const { identity } = claims[this.#next++ % claims.length]!;
      const areDue = async (turn: AbortSignal) => await this.#areDue(store.claim(identity.uid), turn);
      try {
        if (!(await areDue(signal))) toCheck--;
        // `prepareAgain` itself reports a failure in the log and as an event.
        else if (await helper.prepareAgain(identity, areDue, signal))
          logger.warn({ claim: claimName(identity) }, 'made lost leases of pool addresses anew');
      } catch (error) {
        if (isKubeError(error) || error instanceof StateError) throw error;
        errors.push(error);
      }
    }
    if (errors.length > 0) throw asOneError(errors);
  }

  /** Returns whether leases of a claim are lost and preparing it again only makes them anew. */
  async #areDue(claim: StoredClaim | undefined, signal: AbortSignal): Promise<boolean> {
    const { addressPools } = this.#options;
    if (claim?.state !== 'prepared') return false;
    for (const { config } of claim.devices) {
      const { addressPool: { name } = {}, addresses = [] } = config;
      const areLeased =
        name === undefined || (await addressPools.areLeased(name, addresses, claim.identity.uid, signal));
      if (!areLeased) return await this.#isUnchanged(claim, signal);
    }
    return false;
  }

  /**
   * Returns whether the claim still exists with the same allocation and is still reserved for one of its pods. If it does not,
   * it must not be prepared again: that could take VFs from the containers of a pod that was deleted by force.
   */
  async #isUnchanged({ identity, podUids, allocation }: StoredClaim, signal: AbortSignal): Promise<boolean> {
    const { claims, driver } = this.#options;
    const object = await unlessMissing(claims.readClaim(identity.namespace, identity.name, signal));
    if (object?.metadata?.uid !== identity.uid || fingerprintOf(driver, object) !== allocation) return false;
    return (object.status?.reservedFor ?? []).some(({ uid }) => podUids.includes(uid));
  }
}
