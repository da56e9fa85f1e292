import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { type ClaimDevices, invalidConfig, type StoredDevice } from '../model/index.ts';
import { checkPodRoutes } from './pod-routes.ts';
import { checkPodVrfs } from './pod-vrfs.ts';

/** A name that a claim gives to a link in its pod. */
interface NamedLink {
  field: 'interfaceName' | 'bond' | 'vrf';
  name: string;
  /** The link's owner: a device, `a bond` or `a VRF`, with its claim if that is another one. */
  owner: string;
}

/**
 * Checks that no two interfaces of a pod have the same name, nor routes to the same destination, and that its VRFs fit
 * together. If a claim sets no name, the name is chosen when the VF is attached.
 * @param others the other claims of the claim's pods
 * @throws DriverError `config-invalid`
 */
export function checkPodInterfaces(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  others: readonly ClaimDevices[],
): void {
  const taken = namesOf(others);
  for (const link of linksOf(devices)) {
    const { field, name, owner } = link;
    const subject = field === 'interfaceName' ? `device ${owner}` : owner.replace('a ', 'the ');
    const other = taken.get(name);
    // Several interfaces can be in one VRF.
    if (other !== undefined && (field !== 'vrf' || other.field !== 'vrf'))
      throw invalidConfig(claim, [
        `${field}: ${subject} cannot have the name ${name}, which ${other.owner} has already`,
      ]);
    taken.set(name, link);
  }
  checkPodVrfs(claim, devices, others);
  checkPodRoutes(claim, devices, others);
}

/** Returns the links of claims by their names. */
function namesOf(claims: readonly ClaimDevices[]): Map<string, NamedLink> {
  const links = claims.flatMap(({ identity, devices }) =>
    linksOf(devices).map((link): [string, NamedLink] => {
      return [link.name, { ...link, owner: `${link.owner} of claim ${claimName(identity)}` }];
    }),
  );
  return new Map(links);
}

/** Returns the names that a claim gives to interfaces of its devices, to bonds, and to VRFs. */
function linksOf(devices: readonly StoredDevice[]): NamedLink[] {
  const ofDevices = devices.flatMap(({ name: device, config: { interfaceName: name } }): NamedLink[] =>
    name === undefined ? [] : [{ field: 'interfaceName', name, owner: device }],
  );
  const bonds = new Set(devices.flatMap(({ config }) => config.bond?.name ?? []));
  const vrfs = new Set(devices.flatMap(({ config }) => config.vrf?.name ?? []));
  return [
    ...ofDevices,
    ...[...bonds].map((name): NamedLink => ({ field: 'bond', name, owner: 'a bond' })),
    ...[...vrfs].map((name): NamedLink => ({ field: 'vrf', name, owner: 'a VRF' })),
  ];
}
