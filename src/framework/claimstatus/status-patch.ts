import { isDeepStrictEqual } from 'node:util';
import type { AllocatedDeviceStatus, DeviceReference, JsonPatchOperation } from '../kube/index.ts';
import { isOfSameDevice } from './device-status.ts';

export interface StoredStatus {
  resourceVersion: string;
  /** Entries of all drivers; absent if the claim has none. */
  devices?: AllocatedDeviceStatus[];
  /** Devices allocated to the claim: the API server refuses entries for any others. */
  allocated: readonly DeviceReference[];
}

/** Owner of entries. The writer changes only the entries of this owner. */
export interface EntryOwner {
  driver: string;
  /**
   * Restricts ownership to devices of this pool: an instance on another node may have entries in the same claim. Default:
   * all pools.
   */
  pool?: string;
}

/**
 * Returns the changes that make `wanted` the only entries of their owner; empty if they already are. The changes are a JSON
 * patch, which touches only the owner's entries. A merge patch would also send back the entries of other drivers, in altered
 * form: the API server has sorted the keys of their `data`, and JavaScript has rounded integers beyond 2^53. Since Kubernetes
 * 1.36 the API server refuses such changes.
 */
export function statusPatch(
  { resourceVersion, devices }: StoredStatus,
  owner: EntryOwner,
  wanted: readonly AllocatedDeviceStatus[],
): JsonPatchOperation[] {
  const present = [...(devices ?? []).entries()].filter(([, entry]) => isOf(owner, entry));
  const replaced = present.flatMap(([index, entry]): JsonPatchOperation[] => {
    const next = wanted.find((each) => isOfSameDevice(each, entry));
    if (next === undefined || isWritten(entry, next)) return [];
    return [{ op: 'replace', path: `/status/devices/${index}`, value: withConditionsOfOthers(next, entry) }];
  });
  const removed = present
    .filter(([, entry]) => !wanted.some((each) => isOfSameDevice(each, entry)))
    // Last one first: each removal shifts the entries behind it.
    .reverse()
    .map(([index]): JsonPatchOperation => ({ op: 'remove', path: `/status/devices/${index}` }));
  // Two requests of a claim may have the same device, if one of the requests has admin access.
  const distinct = wanted.filter((each, index) => wanted.findIndex((other) => isOfSameDevice(each, other)) === index);
  const added = distinct.filter((each) => !present.some(([, entry]) => isOfSameDevice(each, entry)));
  const changes = [...replaced, ...removed, ...additions(added, devices !== undefined)];
  // The indexes belong to this version: for any other version the API server answers with a conflict.
  return changes.length === 0
    ? []
    : [{ op: 'replace', path: '/metadata/resourceVersion', value: resourceVersion }, ...changes];
}

export function isOf({ driver, pool }: EntryOwner, entry: DeviceReference): boolean {
  return entry.driver === driver && (pool === undefined || entry.pool === pool);
}

function additions(added: AllocatedDeviceStatus[], isListThere: boolean): JsonPatchOperation[] {
  if (added.length === 0) return [];
  if (!isListThere) return [{ op: 'add', path: '/status/devices', value: added }];
  return added.map((value) => ({ op: 'add', path: '/status/devices/-', value }));
}

/** Returns whether the claim has the wanted entry. Ignores conditions that other components have set. */
function isWritten(entry: AllocatedDeviceStatus, wanted: AllocatedDeviceStatus): boolean {
  const own = ({ conditions = [], data = {}, networkData }: AllocatedDeviceStatus) => [
    wanted.conditions?.map(({ type }) => conditions.find((each) => each.type === type)),
    data,
    networkData,
  ];
  return isDeepStrictEqual(own(entry), own(wanted));
}

/** Keeps conditions that other components set on the driver's devices, such as binding conditions. */
function withConditionsOfOthers(next: AllocatedDeviceStatus, entry: AllocatedDeviceStatus): AllocatedDeviceStatus {
  const { conditions = [] } = next;
  const others = entry.conditions?.filter(({ type }) => !conditions.some((own) => own.type === type)) ?? [];
  return { ...next, conditions: [...conditions, ...others] };
}
