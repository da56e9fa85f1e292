import type { DeviceHealth } from '../../framework/kubeletplugin/index.ts';
import { type HungWrite, hungWriteHint } from '../../node/sriov/index.ts';
import type { StoredClaim } from '../state/index.ts';

/**
 * Health of the node's devices as reported to the kubelet. Devices that were found are healthy unless they hang; a device
 * that a claim holds but that is no longer found is not. While they exist, claimed devices are offered whatever the policy says.
 * @param offered names of the devices that were found
 * @param hung those whose kernel driver does not return from a write
 */
export function deviceHealth(
  poolName: string,
  offered: readonly string[],
  claims: readonly StoredClaim[],
  hung: readonly (HungWrite & { name?: string })[] = [],
): DeviceHealth[] {
  const held = claims.flatMap(({ devices }) => devices.filter(({ pool }) => pool === poolName));
  const missing = new Set(held.map(({ name }) => name).filter((name) => !offered.includes(name)));
  const message = 'not found on the node any more: the pod has to be replaced';
  return [
    ...offered.map((deviceName): DeviceHealth => {
      const write = hung.find(({ name }) => name === deviceName);
      if (write === undefined) return { poolName, deviceName, health: 'healthy' };
      const reason = `the kernel does not return from a write to ${write.path}: ${hungWriteHint}`;
      return { poolName, deviceName, health: 'unhealthy', message: reason };
    }),
    ...[...missing].map((deviceName): DeviceHealth => ({ poolName, deviceName, health: 'unhealthy', message })),
  ];
}
