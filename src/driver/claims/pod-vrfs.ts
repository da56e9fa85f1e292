import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { type ClaimDevices, invalidConfig, type StoredDevice } from '../model/index.ts';

/**
 * Checks that every VRF of a pod has one table, and every table one VRF: the kernel would use the routes of one VRF for the
 * traffic of the other.
 * @param others the other claims of the claim's pods
 * @throws DriverError `config-invalid` with both VRFs
 */
export function checkPodVrfs(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  others: readonly ClaimDevices[],
): void {
  const vrfsOf = (of: readonly StoredDevice[], claimText: string) =>
    of.flatMap(({ name, config: { vrf } }) => (vrf === undefined ? [] : [{ ...vrf, owner: `${name}${claimText}` }]));
  const held = others.flatMap((each) => vrfsOf(each.devices, ` of claim ${claimName(each.identity)}`));
  for (const own of vrfsOf(devices, '')) {
    const other = held.find(({ name, table }) => (name === own.name) !== (table === own.table));
    if (other !== undefined) {
      const has = `device ${other.owner} has ${other.name} with table ${other.table}`;
      throw invalidConfig(claim, [`vrf: device ${own.owner} has ${own.name} with table ${own.table}, but ${has}`]);
    }
    held.push(own);
  }
}
