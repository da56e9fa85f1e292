import { type ClaimIdentity, claimName, formatDeviceKey } from '../../framework/metadata/index.ts';
import type { Logger } from '../../lib/logger.ts';
import type { StoredClaim, StoredDevice } from '../model/index.ts';
import type { Store } from '../state/index.ts';

export interface EndEarlierBootsOptions {
  store: Pick<Store, 'claimsOfEarlierBoots' | 'forgetUnrestoredOfEarlierBoots' | 'putClaim' | 'setAttachments'>;
  /** Withdraws a claim's files, so that containers that have not started yet do not see them. */
  withdraw: (claim: ClaimIdentity) => Promise<void>;
  logger: Logger;
}

/**
 * Discards state that a reboot has invalidated, before anything else uses it: sandboxes are gone, VFs are as the kernel has
 * created them, and restoring stored snapshots would undo the work of others. Prepared claims become `preparing`: the kubelet
 * prepares them again, and everything is set up anew.
 * @returns the number of claims
 * @throws StateError `store-unusable`
 */
export async function endEarlierBoots({ store, withdraw, logger }: EndEarlierBootsOptions): Promise<number> {
  const claims = store.claimsOfEarlierBoots();
  for (const claim of claims) {
    const { uid } = claim.identity;
    const log = { claim: claimName(claim.identity), claimUid: uid, state: claim.state };
    // A failure is only logged: the next prepare withdraws the files, too, and no container of the claim starts without its
    // VFs.
    await withdraw(claim.identity).catch((error: unknown) => {
      logger.error({ ...log, err: error }, 'cannot withdraw the metadata of a claim of an earlier boot');
    });
    store.setAttachments(uid, new Map(claim.devices.map((device) => [formatDeviceKey(device), undefined])));
    store.putClaim(afterBoot(claim));
    logger.info(log, 'node rebooted; claim must be prepared again');
  }
  store.forgetUnrestoredOfEarlierBoots();
  return claims.length;
}

function afterBoot({ state, devices, ...claim }: StoredClaim): StoredClaim {
  return {
    ...claim,
    state: state === 'unpreparing' ? 'unpreparing' : 'preparing',
    devices: devices.map(
      ({ before: _1, access: _2, attachment: _3, isDisabledForLacp: _4, ...device }): StoredDevice => device,
    ),
  };
}
