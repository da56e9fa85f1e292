import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { type ClaimDevices, invalidConfig, type StoredDevice, type VfConfig, type VrfConfig } from '../model/index.ts';

/** VRF of an interface, with the sysctls of the interface. */
interface HeldVrf extends VrfConfig {
  sysctls: VfConfig['sysctls'];
  /** Owner of the interface in messages. */
  owner: string;
}

/** VRFs and routing tables that the interfaces of a pod use. */
interface HeldTables {
  vrfs: HeldVrf[];
  /** Users of routing tables outside of VRFs, by table: a route or rule, such as `rules[0] of device dev-1`. */
  tables: Map<number, string>;
}

/** Sysctl that may differ between the interfaces of a VRF: the VRF itself does not use it. */
const ofOneInterface = 'net.ipv6.conf.IFNAME.stable_secret';

/**
 * Checks that every VRF of a pod has one table and one set of sysctls, and that only the VRF uses its table. Otherwise other
 * traffic would follow the routes of the VRF, the last of which refuse all other destinations.
 * @param others the other claims of the claim's pods
 * @throws DriverError `config-invalid` with both interfaces
 */
export function checkPodVrfs(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  others: readonly ClaimDevices[],
): void {
  const held: HeldTables = { vrfs: [], tables: new Map() };
  for (const { identity, devices: itsDevices } of others) {
    for (const device of itsDevices) hold(held, device, `device ${device.name} of claim ${claimName(identity)}`);
  }
  for (const device of devices) {
    const owner = `device ${device.name}`;
    const { vrf, sysctls } = device.config;
    const problem =
      vrf === undefined ? usageProblem(held, device, owner) : vrfProblem(held, { ...vrf, sysctls, owner });
    if (problem !== undefined) throw invalidConfig(claim, [problem]);
    hold(held, device, owner);
  }
}

function hold({ vrfs, tables }: HeldTables, { config }: StoredDevice, owner: string): void {
  if (config.vrf !== undefined) vrfs.push({ ...config.vrf, sysctls: config.sysctls, owner });
  else for (const [table, field] of tablesOf(config)) tables.set(table, `${field} of ${owner}`);
}

function vrfProblem({ vrfs, tables }: HeldTables, own: HeldVrf): string | undefined {
  const other = vrfs.find(({ name, table }) => (name === own.name) !== (table === own.table));
  if (other !== undefined) return `vrf: ${textOf(own)}, but ${textOf(other)}`;
  const user = tables.get(own.table);
  if (user !== undefined) return `vrf: ${textOf(own)}, but ${user} has that table outside of the VRF`;
  const member = vrfs.find(({ name }) => name === own.name);
  return member && settingsProblem(own, member);
}

function usageProblem({ vrfs }: HeldTables, { config }: StoredDevice, owner: string): string | undefined {
  if (vrfs.length === 0) return undefined;
  const tables = tablesOf(config);
  const vrf = vrfs.find(({ table }) => tables.has(table));
  return vrf && `${tables.get(vrf.table)}: ${owner} has table ${vrf.table} outside of a VRF, but ${textOf(vrf)}`;
}

/** Returns a problem if two interfaces of a VRF have different sysctls: the VRF gets the sysctls of its members. */
function settingsProblem(own: HeldVrf, other: HeldVrf): string | undefined {
  const valuesOf = ({ sysctls = {} }: HeldVrf) =>
    new Map(Object.entries(sysctls).map(([key, value]) => [key, `${value}`]));
  const [values, others] = [valuesOf(own), valuesOf(other)];
  const keys = [...values.keys(), ...others.keys()];
  const key = keys.find((each) => each !== ofOneInterface && values.get(each) !== others.get(each));
  if (key === undefined) return undefined;
  const value = (of: typeof values) => of.get(key) ?? 'no value';
  return `sysctls: ${key} is ${value(values)} for ${own.owner}, and ${value(others)} for ${other.owner}: all interfaces of VRF ${own.name} must have the same`;
}

function textOf({ owner, name, table }: HeldVrf): string {
  return `${owner} has ${name} with table ${table}`;
}

/** Returns the fields that name routing tables, by table, such as `routes[0]`. */
function tablesOf({ routes = [], rules = [] }: VfConfig): Map<number, string> {
  const all = { routes, rules };
  return new Map(
    (['routes', 'rules'] as const).flatMap((field) =>
      all[field].flatMap(({ table }, index): [number, string][] =>
        table === undefined ? [] : [[table, `${field}[${index}]`]],
      ),
    ),
  );
}
