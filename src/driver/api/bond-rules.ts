import { isDeepStrictEqual } from 'node:util';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { baseRequest } from '../../framework/metadata/index.ts';
import { interfaceSettings, invalidConfig, type StoredDevice, type VfConfig } from '../model/index.ts';

/** Fields that must be equal for all members of a bond, since netdra applies them to the bond. */
const fieldsOfBond = ['bond', 'mtu', 'addresses', 'slaac', ...interfaceSettings, 'ipam'] as const;

/**
 * Checks that each bond of a claim has several members, of several PFs, with equal settings.
 * @throws DriverError `config-invalid`
 */
export function checkBonds(claim: AllocatedClaim, devices: readonly StoredDevice[]): void {
  const members = devices.filter(({ config }) => config.bond !== undefined);
  for (const [bond = '', ofBond] of Map.groupBy(members, ({ config }) => config.bond?.name)) {
    const problem = problemOf(ofBond);
    if (problem !== undefined) throw invalidConfig(claim, [`bond: ${bond} ${problem}`]);
  }
}

function problemOf(members: readonly StoredDevice[]): string | undefined {
  const [first, ...others] = members as [StoredDevice, ...StoredDevice[]];
  if (others.length === 0) {
    return `has one member, device ${first.name} of request ${first.request}, and needs two: the config entry has to list the other request, too`;
  }
  for (const field of fieldsOfBond) {
    const other = others.find(({ config }) => !isDeepStrictEqual(config[field], first.config[field]));
    if (other === undefined) continue;
    const [one, two] = [first, other].map(
      ({ config, request }) => `${JSON.stringify(config[field]) ?? 'nothing'} from request ${request}`,
    );
    return `has ${field} ${one}, and ${two}: all members have to ask for the same`;
  }
  const problem = primaryProblem(members) ?? linkTypeProblem(members);
  if (problem !== undefined) return problem;
  const pfs = new Set(members.map(({ pfAddress, pciAddress }) => pfAddress ?? pciAddress));
  if (pfs.size > 1) return undefined;
  const names = members.map(({ name }) => name).join(' and ');
  return `has ${names}, all of PF ${[...pfs].join()}: give the claim the constraint distinctAttribute: sriov.netdra.dev/pfPciAddress`;
}

/** Returns a problem if the primary member of the bond is not a request of the claim. */
export function primaryProblems({ object }: AllocatedClaim, { bond }: VfConfig): string[] {
  const names = object.spec?.devices?.requests?.map(({ name }) => name);
  if (bond?.primary === undefined || names === undefined || names.includes(bond.primary)) return [];
  return [`bond.primary: ${bond.primary} is no request of the claim, which has ${names.join(', ')}`];
}

function primaryProblem(members: readonly StoredDevice[]): string | undefined {
  const primary = members[0]?.config.bond?.primary;
  if (primary === undefined) return undefined;
  const requests = members.map(({ request }) => baseRequest(request));
  const count = requests.filter((each) => each === primary).length;
  if (count === 1) return undefined;
  const names = [...new Set(requests)].join(' and ');
  return count === 0
    ? `has primary ${primary}, but its members are of the requests ${names}`
    : `has primary ${primary}, but that request has ${count} of its members: give the primary member a request of its own`;
}

/**
 * Returns a problem with the members' link types, which must be equal. The hardware address of InfiniBand members cannot be
 * set, which rules out some options. Source: Linux `bond_enslave`.
 */
function linkTypeProblem(members: readonly StoredDevice[]): string | undefined {
  const [first, ...others] = members;
  const typeOf = ({ offered }: StoredDevice) => offered.linkType ?? 'ethernet';
  if (first === undefined) return undefined;
  const other = others.find((each) => typeOf(each) !== typeOf(first));
  if (other !== undefined) {
    return `has ${first.name} of link type ${typeOf(first)}, and ${other.name} of ${typeOf(other)}: all members must have the same type`;
  }
  if (typeOf(first) !== 'infiniband') return undefined;
  const { mode = 'active-backup', failOverMac = 'active' } = first.config.bond ?? {};
  if (mode !== 'active-backup') return `has mode ${mode}, but ${first.name} is InfiniBand, which needs active-backup`;
  if (failOverMac === 'active') return undefined;
  return `has failOverMac ${failOverMac}, but ${first.name} is InfiniBand, which needs active`;
}
