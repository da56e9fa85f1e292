import { defined } from '../../lib/defined.ts';
import type { AllocatedDeviceStatus, Condition, DeviceReference, StatusCondition } from '../kube/index.ts';
import { formatDeviceKey, type NetworkDeviceData } from '../metadata/index.ts';

/** A device's entry in its claim's status. */
export interface DeviceStatus {
  pool: string;
  device: string;
  /** ID of the device's share, if several claims share the device. */
  shareId?: string;
  /** Status of the condition `Ready`: whether the device is in the state that the claim requests. */
  ready: boolean;
  /** Reason of the condition `Ready`, one CamelCase word: `Attached`. */
  reason: string;
  message?: string;
  /** Conditions besides `Ready`. Earlier conditions whose type is missing here stay. */
  conditions?: StatusCondition[];
  networkData?: NetworkDeviceData;
  /** Driver-specific data, at most 10 KiB of JSON. */
  data?: object;
}

/** Limits of resource.k8s.io/v1. */
const maxIps = 16;
const maxMessageLength = 32_768;

/**
 * Converts an entry to the API's shape. Truncates values beyond the API's limits: for one address too many, the API server
 * would refuse the whole status.
 * @param known entries that the API server has: a condition whose status is unchanged keeps its `lastTransitionTime`
 * @param now RFC 3339
 */
export function toAllocatedStatus(
  driver: string,
  status: DeviceStatus,
  known: readonly AllocatedDeviceStatus[],
  now: string,
): AllocatedDeviceStatus {
  const { pool, device, shareId, ready, reason, message = '', conditions = [], networkData, data } = status;
  const entry: AllocatedDeviceStatus = { driver, pool, device, ...defined({ shareID: shareId }) };
  const before = known.find((each) => isOfSameDevice(each, entry))?.conditions ?? [];
  const isReady: StatusCondition = { type: 'Ready', status: ready ? 'True' : 'False', reason, message };
  const toCondition = (wanted: StatusCondition): Condition => {
    const same = before.find(({ type, status }) => type === wanted.type && status === wanted.status);
    const { lastTransitionTime = now } = same ?? {};
    return { ...wanted, message: wanted.message.slice(0, maxMessageLength), lastTransitionTime };
  };
  return {
    ...entry,
    conditions: [isReady, ...conditions].map(toCondition),
    ...(data === undefined ? {} : { data }),
    ...(networkData === undefined ? {} : { networkData: cutNetworkData(networkData) }),
  };
}

function cutNetworkData({ ips, ...rest }: NetworkDeviceData): NetworkDeviceData {
  return ips === undefined ? rest : { ...rest, ips: [...new Set(ips)].slice(0, maxIps) };
}

/** Returns whether two references name the same device, and the same share of it. */
export function isOfSameDevice(one: DeviceReference, other: DeviceReference): boolean {
  return keyOf(one) === keyOf(other);
}

function keyOf({ driver, pool, device: name, shareID: shareId }: DeviceReference): string {
  return formatDeviceKey({ driver, pool, name, ...defined({ shareId }) });
}
