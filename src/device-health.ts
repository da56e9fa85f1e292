import type { DeviceHealth } from './kubeletplugin/index.ts';
import type { StoredClaim } from './state/index.ts';

/**
 * The health of the node's devices that the kubelet receives: those that are there are healthy; one that a claim holds and that is not
 * found any more is not. What claims hold is offered whatever the inventory policy says, as long as it is there.
 * @param offered names of the devices that were found
 * @param hanging names of those that the kernel does not come back from
 */
export function deviceHealth(
  poolName: string,
  offered: readonly string[],
  claims: StoredClaim[],
  hanging: readonly string[] = [],
): DeviceHealth[] {
  const held = claims.flatMap(({ devices }) => devices.filter(({ pool }) => pool === poolName));
  const missing = new Set(held.map(({ name }) => name).filter((name) => !offered.includes(name)));
  const message = 'not found on the node any more: the pod has to be replaced';
  return [
    ...offered.map((deviceName): DeviceHealth => {
      if (!hanging.includes(deviceName)) return { poolName, deviceName, health: 'healthy' };
      return {
        poolName,
        deviceName,
        health: 'unhealthy',
        message: 'the kernel does not come back from a change of it',
      };
    }),
    ...[...missing].map((deviceName): DeviceHealth => ({ poolName, deviceName, health: 'unhealthy', message })),
  ];
}
