import { createHash } from 'node:crypto';
import type { AllocatedClaim, ClaimObject, PreparedDevice } from '../../framework/kubeletplugin/index.ts';
import type { DeviceProgress, StoredClaim, StoredDevice, UnrestoredVf } from '../model/index.ts';

/** A claim that is being prepared. */
export interface PrepareWork {
  readonly uid: string;
  readonly claim: AllocatedClaim;
  readonly podUids: string[];
  readonly allocation: string;
  /** Whether the claim's devices are already configured for its current allocation. */
  readonly isAgain: boolean;
  /** Whether the claim is already configured, and moves to a pod that it was not prepared for. */
  readonly isHandedOver: boolean;
  /** The claim as stored at the beginning of the call. */
  readonly known: StoredClaim | undefined;
  /** Devices that the claim had before, unless they were restored. */
  earlier: readonly StoredDevice[];
  /** VFs that the claim had before and that could not be restored. */
  unrestored: UnrestoredVf[];
  devices: StoredDevice[];
  /** Devices for user space, each with the PCI addresses of the other members of its IOMMU group. */
  groups: [StoredDevice, string[]][];
  /** Progress of the whole prepare call. */
  readonly progress: DeviceProgress<AllocatedClaim>;
  /** Devices for the answer to the kubelet. */
  prepared: PreparedDevice[];
}

export function toWork(
  driver: string,
  claim: AllocatedClaim,
  known: StoredClaim | undefined,
  progress: DeviceProgress<AllocatedClaim>,
): PrepareWork {
  const allocation = fingerprintOf(driver, claim.object);
  const isAgain = known?.state === 'prepared' && known.allocation === allocation;
  const podUids = isAgain ? nextPods(known, claim) : claim.podUids;
  const isHandedOver = isAgain && !podUids.some((uid) => known.podUids.includes(uid));
  return {
    uid: claim.identity.uid,
    claim,
    allocation,
    isAgain,
    isHandedOver,
    known,
    podUids,
    progress,
    earlier: known?.devices ?? [],
    unrestored: [],
    devices: isAgain ? known.devices : [],
    groups: [],
    prepared: [],
  };
}

/** Returns the fields of the claim that are stored. */
export function storedOf({
  claim: { identity },
  podUids,
  allocation,
  devices,
}: PrepareWork): Omit<StoredClaim, 'state'> {
  return { identity, podUids, allocation, devices };
}

/**
 * Returns the pods of a prepared claim: those that it was prepared for and is still reserved for; if there are none, the next
 * pod. The kubelet does not prepare a claim again for another pod, and a VF can be in only one pod at a time.
 */
function nextPods(known: StoredClaim, { podUids }: AllocatedClaim): string[] {
  const kept = known.podUids.filter((uid) => podUids.includes(uid));
  return kept.length > 0 ? kept : podUids.slice(0, 1);
}

/**
 * Returns a fingerprint of the claim's allocation and this driver's configuration, which tells a new allocation from a
 * repeated prepare.
 */
export function fingerprintOf(driver: string, { status }: { status?: ClaimObject['status'] }): string {
  const { results = [], config: all = [] } = status?.allocation?.devices ?? {};
  // Other drivers check their own entries.
  const config = all.filter(({ opaque }) => opaque?.driver === driver);
  return createHash('sha256')
    .update(JSON.stringify([results, config]))
    .digest('base64url');
}
