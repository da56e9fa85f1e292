import type { KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import type { Logger } from '../../lib/logger.ts';
import type { AddressAllocator } from '../addresses/index.ts';
import type { StoredClaim } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';

/** Number of sweeps in which all claims have their turn. */
const sweepsOfAll = 5;

export interface LostLeasesOptions {
  store: StoredClaims;
  addressPools: { areLeased: AddressAllocator['areLeased'] };
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

  /** Runs one sweep. Does nothing while the cluster has no address pools. @throws KubeError, StateError */
  async sweep(signal: AbortSignal): Promise<void> {
    const { store, helper, logger } = this.#options;
    const hasPool = ({ devices }: StoredClaim) => devices.some(({ config }) => config.addressPool !== undefined);
    const claims = store.claims().filter((claim) => claim.state === 'prepared' && hasPool(claim));
    let toCheck = Math.ceil(claims.length / sweepsOfAll);
    for (let count = 0; count < claims.length && toCheck > 0 && !signal.aborted; count++) {
      const { identity } = claims[this.#next++ % claims.length]!;
      const areLost = async (turn: AbortSignal) => !(await this.#areLeased(store.claim(identity.uid), turn));
      const isIntact = !(await areLost(signal));
      if (isIntact) toCheck--;
      // `prepareAgain` itself reports a failure in the log and as an event.
      else if (await helper.prepareAgain(identity, areLost, signal))
        logger.warn({ claim: claimName(identity) }, 'made lost leases of pool addresses anew');
    }
  }

  async #areLeased(claim: StoredClaim | undefined, signal: AbortSignal): Promise<boolean> {
    const { addressPools } = this.#options;
    for (const { config } of claim?.state === 'prepared' ? claim.devices : []) {
      const { addressPool: { name } = {}, addresses = [] } = config;
      const uid = claim?.identity.uid ?? '';
      const areLeased = name === undefined || (await addressPools.areLeased(name, addresses, uid, signal));
      if (!areLeased) return false;
    }
    return true;
  }
}
