import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { type ClaimDevices, invalidConfig, type StoredDevice } from '../model/index.ts';
import { checkPodRoutes } from './pod-routes.ts';

/**
 * Checks that no two interfaces of a pod have the same name, nor routes to the same destination. A name that the claim
 * leaves open is chosen when the VF is attached.
 * @param others the other claims of the claim's pods
 * @throws DriverError `config-invalid`
 */
export function checkPodInterfaces(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  others: readonly ClaimDevices[],
): void {
  const taken = namesOf(others);
  for (const { field, name, device } of interfacesOf(devices)) {
    const [subject, owner] = [device === undefined ? 'the bond' : `device ${device}`, taken.get(name)];
    if (owner !== undefined)
      throw invalidConfig(claim, [`${field}: ${subject} cannot have the name ${name}, which ${owner} has already`]);
    taken.set(name, device ?? 'a bond');
  }
  checkPodRoutes(claim, devices, others);
}

/** Returns interface names of claims, with the devices that have them. */
function namesOf(claims: readonly ClaimDevices[]): Map<string, string> {
  const names = claims.flatMap(({ identity, devices }) =>
    interfacesOf(devices).map(({ name, device = 'a bond' }): [string, string] => {
      return [name, `${device} of claim ${claimName(identity)}`];
    }),
  );
  return new Map(names);
}

/** Returns the names that a claim gives to interfaces of its devices, and to bonds. */
function interfacesOf(devices: readonly StoredDevice[]): { field: string; name: string; device?: string }[] {
  const ofDevices = devices.flatMap(({ name: device, config: { interfaceName: name } }) =>
    name === undefined ? [] : { field: 'interfaceName', name, device },
  );
  const bonds = new Set(devices.flatMap(({ config }) => config.bond?.name ?? []));
  return [...ofDevices, ...[...bonds].map((name) => ({ field: 'bond', name }))];
}
