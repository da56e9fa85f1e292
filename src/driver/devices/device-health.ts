import type { DeviceHealth } from '../../framework/kubeletplugin/index.ts';
import type { StoredClaim } from '../model/index.ts';
import type { DeviceCondition } from './device-conditions.ts';

/**
 * Returns the health of the node's devices for the kubelet. A device that was found is healthy unless it has a condition; a
 * claimed device that is no longer found is unhealthy. Existing devices of claims are among `offered`, whatever the policy
 * says.
 * @param offered names of the devices that were found
 * @param unhealthy conditions of devices, by name
 */
export function deviceHealth(
  poolName: string,
  offered: readonly string[],
  claims: readonly StoredClaim[],
  unhealthy: ReadonlyMap<string, readonly DeviceCondition[]> = new Map(),
): DeviceHealth[] {
  const held = claims.flatMap(({ devices }) => devices.filter(({ pool }) => pool === poolName));
  const missing = new Set(held.map(({ name }) => name).filter((name) => !offered.includes(name)));
  const message = 'not found on the node any more: the pod has to be replaced';
  return [
    ...offered.map((deviceName): DeviceHealth => {
      // The operator's work is still ahead: the device is not yet faulty for the pod that has it.
      const conditions = (unhealthy.get(deviceName) ?? []).filter(({ name }) => name !== 'operator-at-work');
      if (conditions.length === 0) return { poolName, deviceName, health: 'healthy' };
      const reasons = conditions.map((condition) => condition.message).join('; ');
      return { poolName, deviceName, health: 'unhealthy', message: reasons };
    }),
    ...[...missing].map((deviceName): DeviceHealth => ({ poolName, deviceName, health: 'unhealthy', message })),
  ];
}
