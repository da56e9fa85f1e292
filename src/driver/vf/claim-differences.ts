import {
  type EntryTable,
  formatRoute,
  type Link,
  leadsAsWanted,
  maxListedRoutes,
  NetlinkError,
  neighborTable,
  ruleTable,
} from '../../node/netlink/index.ts';
import type { VfConfig } from '../model/index.ts';
import { toNewRoute } from './configure-link.ts';
import { findOtherEthtool } from './ethtool-settings.ts';
import { interfaceSettings } from './interface-settings.ts';
import type { NetworkNamespace } from './networks.ts';

/** A setting of an interface in a pod that differs from class and claim, with texts for messages. */
export interface Difference {
  setting:
    | 'allMulticast'
    | 'ethtool'
    | 'neighbors'
    | 'offloadLimits'
    | 'promiscuous'
    | 'routes'
    | 'rules'
    | 'sysctls'
    | 'vrf';
  wanted: string;
  found: string;
}

/**
 * Compares an interface with class and claim, except for its addresses, MTU and MAC. Leaves out settings that cannot be read
 * completely: a pod can have any number of routes, and can keep changing them.
 * @param vfName name of the VF's own interface, if the interface is a bond
 */
export async function findDifferences(
  namespace: NetworkNamespace,
  interfaceName: string,
  config: VfConfig,
  vfName = interfaceName,
): Promise<Difference[]> {
  try {
    const otherSysctls = findOtherSysctls(namespace, interfaceName, config);
    const ofLink = await findOfLink(namespace.connection, interfaceName, config);
    return [...ofLink, ...otherSysctls, ...(await findOfDriver(namespace, vfName, config))];
  } catch (error) {
    if (error instanceof NetlinkError) return [];
    throw error;
  }
}

async function findOfDriver(
  { connection, ethtool }: NetworkNamespace,
  name: string,
  config: VfConfig,
): Promise<Difference[]> {
  const link = config.ethtool && (await connection.link({ name }));
  const other = link && (await findOtherEthtool(ethtool, link.index, config.ethtool ?? {}));
  return other === undefined ? [] : [{ setting: 'ethtool', ...other }];
}

const flagSettings = ['allMulticast', 'promiscuous'] as const;

async function findOfLink(
  connection: NetworkNamespace['connection'],
  name: string,
  config: VfConfig,
): Promise<Difference[]> {
  const { routes = [], rules = [], neighbors = [], offloadLimits, vrf } = config;
  const flags = flagSettings.filter((flag) => config[flag] !== undefined);
  const count = routes.length + rules.length + neighbors.length + flags.length;
  const link =
    count === 0 && offloadLimits === undefined && vrf === undefined ? undefined : await connection.link({ name });
  if (link === undefined) return [];
  const isSet = (flag: (typeof flags)[number]) => link.flags?.includes(flag) === true;
  const others = flags.filter((flag) => config[flag] !== isSet(flag));
  return [
    ...others.map((flag) => ({ setting: flag, wanted: `${config[flag]}`, found: `${isSet(flag)}` })),
    ...findOtherLimits(link, offloadLimits),
    ...(await findOtherVrf(connection, link, vrf)),
    ...(await findMissingRoutes(connection, link, routes)),
    ...(await findMissing(connection, link, ruleTable, rules)),
    ...(await findMissing(connection, link, neighborTable, neighbors)),
  ];
}

/** Compares limits. A limit that the kernel does not report does not exist in it: before Linux 6.3, those for IPv4. */
function findOtherLimits({ offloadLimits: found = {} }: Link, limits: VfConfig['offloadLimits'] = {}): Difference[] {
  const keys = Object.keys(limits) as (keyof typeof limits)[];
  const others = keys.filter((key) => found[key] !== undefined && limits[key] !== found[key]);
  if (others.length === 0) return [];
  const listed = (values: typeof limits) => others.map((key) => `${key}=${values[key]}`).join(', ');
  return [{ setting: 'offloadLimits', wanted: listed(limits), found: listed(found) }];
}

async function findOtherVrf(
  connection: NetworkNamespace['connection'],
  { master }: Link,
  wanted: VfConfig['vrf'],
): Promise<Difference[]> {
  if (wanted === undefined) return [];
  const link = master === undefined ? undefined : await connection.link({ index: master });
  const textOf = (name: string, table?: number) => `${name} with table ${table ?? 'unknown'}`;
  const found = link?.kind === 'vrf' ? textOf(link.name, link.vrfTable) : 'none';
  const text = textOf(wanted.name, wanted.table);
  return found === text ? [] : [{ setting: 'vrf', wanted: text, found }];
}

async function findMissingRoutes(
  connection: NetworkNamespace['connection'],
  { index }: Link,
  routes: NonNullable<VfConfig['routes']>,
): Promise<Difference[]> {
  if (routes.length === 0) return [];
  const wanted = routes.map(toNewRoute);
  const { found, isCut } = await connection.findRoutes(index, wanted);
  const missing = wanted.filter((route, at) => {
    const there = found[at];
    return there === undefined || !leadsAsWanted(there, route);
  });
  return isCut ? [] : differenceOf('routes', missing.map(formatRoute));
}

async function findMissing<Entry>(
  connection: NetworkNamespace['connection'],
  { index }: Link,
  table: EntryTable<Entry, 'neighbors' | 'rules'>,
  wanted: readonly Entry[],
): Promise<Difference[]> {
  const found = wanted.length === 0 ? undefined : await connection.entries(table, index, maxListedRoutes);
  if (found === undefined) return [];
  const there = found.map((each) => table.format(each));
  const missing = wanted.map((each) => table.format(each)).filter((each) => !there.includes(each));
  return differenceOf(table.name, missing);
}

function differenceOf(setting: Difference['setting'], missing: readonly string[]): Difference[] {
  return missing.length === 0 ? [] : [{ setting, wanted: missing.join(', '), found: 'missing' }];
}

function findOtherSysctls(namespace: NetworkNamespace, name: string, config: VfConfig): Difference[] {
  const { needed, asked } = interfaceSettings({ ...config, routes: config.routes ?? [] });
  const wanted = Object.entries({ ...needed, ...asked }).filter(([key]) => !isSecret(key));
  const values = namespace.readSysctls(
    name,
    wanted.map(([key]) => key),
  );
  const others = wanted.filter(([key, value]) => !isSameValue(key, `${value}`, values.get(key) ?? `${value}`));
  if (others.length === 0) return [];
  const wantedValues = others.map(([key, value]) => `${key}=${value}`).join(', ');
  return [
    { setting: 'sysctls', wanted: wantedValues, found: others.map(([key]) => `${key}=${values.get(key)}`).join(', ') },
  ];
}

/** Returns whether a value is secret and must not be in events. */
function isSecret(key: string): boolean {
  return key.endsWith('.stable_secret');
}

/**
 * Returns whether two values are equal. The kernel also accepts octal and hexadecimal numbers, and rounds times to its clock,
 * which has at least 100 ticks a second.
 */
function isSameValue(key: string, wanted: string, found: string): boolean {
  const [parts, others] = [wanted.trim().split(/\s+/), found.trim().split(/\s+/)];
  const rounding = key.endsWith('_ms') ? 9 : /\.(retrans_time|locktime|\w+_delay)$/.test(key) ? 1 : 0;
  return (
    parts.length === others.length &&
    parts.every((part, at) => part === others[at] || Math.abs(numberOf(part) - numberOf(others[at] ?? '')) <= rounding)
  );
}

function numberOf(text: string): number {
  return /^0[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number(text);
}
