import type { StoredClaim } from './driver/index.ts';
import type { DeviceHealth } from './kubeletplugin/index.ts';

/**
 * What the kubelet is told of the node's devices: those that are there are healthy; of one that a claim holds and that
 * is not found any more nothing is known.
 * @param offered names of the devices that were found
 */
export function deviceHealth(poolName: string, offered: readonly string[], claims: StoredClaim[]): DeviceHealth[] {
  const held = claims.flatMap(({ devices }) => devices.filter(({ pool }) => pool === poolName));
  const missing = new Set(held.map(({ name }) => name).filter((name) => !offered.includes(name)));
  const message = 'not found on the node any more, or excluded by the inventory policy';
  return [
    ...offered.map((deviceName): DeviceHealth => ({ poolName, deviceName, health: 'healthy' })),
    ...[...missing].map((deviceName): DeviceHealth => ({ poolName, deviceName, health: 'unknown', message })),
  ];
}
