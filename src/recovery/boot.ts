import { readFile } from 'node:fs/promises';
import { NetdraError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import type { Store, StoredClaim, StoredDevice } from '../state/index.ts';

/** Where the kernel tells which boot this is. Source: random(4), `boot_id`. */
export const defaultBootIdPath = '/proc/sys/kernel/random/boot_id';

/** @throws NetdraError `boot-id-unknown`: without it nobody could tell what is true any more */
export async function readBootId(path: string = defaultBootIdPath): Promise<string> {
  try {
    const bootId = (await readFile(path, 'utf8')).trim();
    if (bootId !== '') return bootId;
    throw new Error('it is empty');
  } catch (cause) {
    throw new NetdraError('boot-id-unknown', `cannot read the boot id of the node from ${path}`, { cause, path });
  }
}

export interface EndEarlierBootsOptions {
  store: Pick<Store, 'claimsOfEarlierBoots' | 'forgetUnrestoredOfEarlierBoots' | 'putClaim' | 'setAttachments'>;
  /** Hides a claim's files from containers that have not started yet. */
  withdraw: (claim: ClaimIdentity) => Promise<void>;
  logger: Logger;
}

/**
 * Forgets what a reboot has made untrue, before anything else looks at it: sandboxes are gone, VFs are what the kernel
 * makes them, and what was remembered for giving them back would undo the work of others. Claims that were prepared are
 * as if their preparing had been interrupted: the kubelet prepares them again, and all is set up anew.
 * @returns how many claims there were
 * @throws StateError `store-unusable`
 */
export async function endEarlierBoots({ store, withdraw, logger }: EndEarlierBootsOptions): Promise<number> {
  const claims = store.claimsOfEarlierBoots();
  for (const claim of claims) {
    const { namespace, name, uid } = claim.identity;
    const log = { claim: `${namespace}/${name}`, claimUid: uid, state: claim.state };
    // Best effort: preparing it again hides them too, and without its VFs no container of it is let through.
    await withdraw(claim.identity).catch((error: unknown) => {
      logger.error({ ...log, err: error }, 'metadata of an earlier boot cannot be withdrawn');
    });
    store.setAttachments(uid, new Map(claim.devices.map(({ pciAddress }) => [pciAddress, undefined])));
    store.putClaim(afterBoot(claim));
    logger.info(log, 'the node has booted: the claim is to be prepared again');
  }
  store.forgetUnrestoredOfEarlierBoots();
  return claims.length;
}

function afterBoot({ state, devices, ...claim }: StoredClaim): StoredClaim {
  return {
    ...claim,
    state: state === 'unpreparing' ? 'unpreparing' : 'preparing',
    devices: devices.map(
      ({ before: _before, access: _access, attachment: _attachment, ...device }): StoredDevice => device,
    ),
  };
}
