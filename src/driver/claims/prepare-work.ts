import { createHash } from 'node:crypto';
import type { AllocatedClaim, PreparedDevice } from '../../framework/kubeletplugin/index.ts';
import type { DeviceProgress, StoredClaim, StoredDevice, UnrestoredVf } from '../model/index.ts';

/** A claim that is being prepared. */
export interface PrepareWork {
  readonly uid: string;
  readonly claim: AllocatedClaim;
  readonly podUids: string[];
  readonly allocation: string;
  /** Whether its devices are already configured for its current allocation. */
  readonly isAgain: boolean;
  /** Whether it is already configured, and now passes to another pod than those that it was prepared for. */
  readonly isHandedOver: boolean;
  /** Its stored state at the beginning of the call. */
  readonly known: StoredClaim | undefined;
  /** Its earlier devices, unless they were restored. */
  earlier: readonly StoredDevice[];
  /** Its earlier VFs that could not be restored. */
  unrestored: UnrestoredVf[];
  devices: StoredDevice[];
  /** Members of the IOMMU groups of devices for user space. */
  groups: [StoredDevice, string[]][];
  /** Progress of the whole call. */
  readonly progress: DeviceProgress<AllocatedClaim>;
  /** Answer to the kubelet. */
  prepared: PreparedDevice[];
}

export function toWork(
  driver: string,
  claim: AllocatedClaim,
  known: StoredClaim | undefined,
  progress: DeviceProgress<AllocatedClaim>,
): PrepareWork {
  const allocation = fingerprintOf(driver, claim);
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

/** Returns the claim as it is stored. */
export function storedOf({
  claim: { identity },
  podUids,
  allocation,
  devices,
}: PrepareWork): Omit<StoredClaim, 'state'> {
  return { identity, podUids, allocation, devices };
}

/**
 * Returns the pods of a prepared claim: those that it was prepared for while it is reserved for them, and then the next
 * one. The kubelet makes no call for a pod that takes over a prepared claim, and a VF is in one pod at a time.
 */
function nextPods(known: StoredClaim, { podUids }: AllocatedClaim): string[] {
  const kept = known.podUids.filter((uid) => podUids.includes(uid));
  return kept.length > 0 ? kept : podUids.slice(0, 1);
}

/** Returns a text that is equal for equal allocations of a claim: distinguishes a new allocation from a repeated prepare. */
function fingerprintOf(driver: string, { object }: AllocatedClaim): string {
  const { results = [], config: all = [] } = object.status?.allocation?.devices ?? {};
  // Other drivers check their own entries.
  const config = all.filter(({ opaque }) => opaque?.driver === driver);
  return createHash('sha256')
    .update(JSON.stringify([results, config]))
    .digest('base64url');
}
