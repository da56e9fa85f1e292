import {
  AddressFamily,
  canonicalCidr,
  formatCidr,
  type InterfaceSysctls,
  networkOf,
  parseCidr,
  quickCanonicalAddress,
  type RouteHop,
  routeKey,
  ruleTable,
} from '../../node/netlink/index.ts';
import { interfaceSettings, type RouteConfig, type VfConfig } from '../model/index.ts';

/** Fields that netdra applies only if it moves the VF into the pod itself (`attach: netlink`). */
const netlinkOnly = [
  'ipam',
  'interfaceName',
  'mtu',
  'addresses',
  'addressPool',
  'slaac',
  'keepHostConfig',
  ...interfaceSettings,
  'ethtool',
] as const;
/** Fields that need a network interface of the VF. */
const interfaceOnly = [...interfaceSettings, 'ethtool', 'slaac', 'rdma', 'keepHostConfig'] as const;

/**
 * Finds combinations that are not allowed, although each field by itself is valid.
 * @returns problems as `field: what is needed`
 */
export function findContradictions(config: VfConfig): string[] {
  return [
    ...attachProblems(config),
    ...driverProblems(config),
    ...bondProblems(config),
    ...hostConfigProblems(config),
    ...addressPoolProblems(config),
    ...dhcpProblems(config),
    ...propertyProblems(config),
    ...vrfProblems(config),
    ...routeProblems(config),
    ...bondNeighborProblems(config),
    ...neighborProblems(config),
    ...ipv6Problems(config),
  ];
}

/**
 * Returns the settings that a VF without an interface cannot have, as problems.
 * @param driver kernel driver of the VF, requested by the claim or bound by an administrator
 */
export function findUserSpaceProblems(config: VfConfig, driver: string): string[] {
  const { attach = 'netlink' } = config;
  const problems = asked(config, interfaceOnly).map(
    (field) => `${field}: needs an interface, and ${driver} gives none`,
  );
  if (config.ipam?.type === 'dhcp') problems.push(`ipam: type dhcp needs an interface, and ${driver} gives none`);
  if (config.bond !== undefined) problems.push(`bond: ${config.bond.name} cannot be combined with driver "${driver}"`);
  if (attach !== 'netlink') problems.push(`attach: with ${driver} there is no interface that ${attach} could attach`);
  return problems;
}

function attachProblems(config: VfConfig): string[] {
  const { attach = 'netlink', cni, networkAttachmentDefinition } = config;
  const sources = [cni, networkAttachmentDefinition].filter((source) => source !== undefined).length;
  const problems: string[] = [];
  if (attach === 'cni' && sources !== 1) {
    problems.push(
      `attach: "cni" needs either cni or networkAttachmentDefinition, and has ${sources === 0 ? 'none' : 'both'}`,
    );
  }
  if (attach !== 'cni' && sources > 0) {
    const field = cni === undefined ? 'networkAttachmentDefinition' : 'cni';
    problems.push(`${field}: needs attach: cni, and attach is "${attach}"`);
  }
  if (attach === 'netlink') return problems;
  // CNI plugins are called with the interface name.
  const foreign = netlinkOnly.filter((field) => !(attach === 'cni' && field === 'interfaceName'));
  return [
    ...problems,
    ...asked(config, foreign).map((field) => `${field}: cannot be combined with attach "${attach}"`),
  ];
}

function driverProblems(config: VfConfig): string[] {
  const { driver } = config;
  return driver === undefined || driver === 'kernel' ? [] : findUserSpaceProblems(config, driver);
}

function bondProblems({ bond, attach = 'netlink', vf }: VfConfig): string[] {
  if (bond === undefined) return [];
  const problems = attach === 'netlink' ? [] : [`bond: ${bond.name} cannot be combined with attach "${attach}"`];
  // A bond with LACP notices a lost partner even while the link is up.
  const looksAtLinks = bond.arpInterval === undefined && bond.mode !== '802.3ad';
  if (vf?.linkState === 'enable' && looksAtLinks)
    problems.push(
      `vf.linkState: "enable" keeps the link up when the port has none, so that bond ${bond.name}, which checks links by miimon, never fails over: leave it out, or set bond.arpInterval`,
    );
  const target = findRepeated(bond.arpTargets ?? []);
  return target === undefined ? problems : [...problems, `bond: arpTargets of ${bond.name} has ${target} twice`];
}

/** Returns problems with `keepHostConfig`: the NIC keeps exactly the host's addresses, so nothing else can assign any. */
function hostConfigProblems(config: VfConfig): string[] {
  if (config.keepHostConfig !== true) return [];
  return asked(config, ['addresses', 'addressPool', 'slaac', 'ipam', 'bond', 'vrf']).map((field) => {
    return `${field}: is ${JSON.stringify(config[field])}, but keepHostConfig takes the addresses of the host`;
  });
}

/**
 * Returns problems with `addressPool`: the interface gets the addresses of the pool only, and each member of a bond would get
 * its own.
 */
function addressPoolProblems(config: VfConfig): string[] {
  const { addressPool } = config;
  if (addressPool === undefined) return [];
  return asked(config, ['addresses', 'ipam', 'bond']).map((field) => {
    return `${field}: cannot be combined with addressPool ${JSON.stringify(addressPool)}`;
  });
}

/**
 * Returns problems with the IPAM plugin dhcp: it needs the interface to ask for an address, and a bond is created only
 * afterwards.
 */
function dhcpProblems({ ipam, bond }: VfConfig): string[] {
  return ipam?.type === 'dhcp' && bond !== undefined
    ? [`ipam: type dhcp cannot be combined with bond ${bond.name}`]
    : [];
}

function propertyProblems({ vf = {} }: VfConfig): string[] {
  const { vlan = 0, qos = 0, vlanProto, minTxRate = 0, maxTxRate = 0 } = vf;
  const problems: string[] = [];
  if (vlan === 0 && qos !== 0) problems.push('vf.qos: needs vf.vlan from 1 to 4094');
  if (vlan === 0 && vlanProto !== undefined) problems.push('vf.vlanProto: needs vf.vlan from 1 to 4094');
  if (maxTxRate !== 0 && minTxRate > maxTxRate) problems.push('vf.minTxRate: must not be above vf.maxTxRate');
  return problems;
}

const disableIpv6 = 'net.ipv6.conf.IFNAME.disable_ipv6';
const acceptRa = 'net.ipv6.conf.IFNAME.accept_ra';
const forwarding = 'net.ipv6.conf.IFNAME.forwarding';
/** Sysctls without which the kernel creates no address from a router advertisement. */
const slaacSysctls = [acceptRa, 'net.ipv6.conf.IFNAME.accept_ra_pinfo', 'net.ipv6.conf.IFNAME.autoconf'];
/** Smallest MTU of a link with IPv6. Source: RFC 8200, 5. */
const minIpv6MtuBytes = 1_280;

function ipv6Problems({ addresses = [], routes = [], neighbors = [], slaac, mtu, sysctls = {} }: VfConfig): string[] {
  const asked = [
    ...(slaac === undefined ? [] : [{ cidr: '::', what: 'slaac: it' }]),
    ...addresses.map((cidr, index) => ({ cidr, what: `addresses[${index}]: ${cidr}` })),
    ...routes.map(({ destination: cidr }, index) => ({ cidr, what: `routes[${index}]: ${cidr}` })),
    ...neighbors.map(({ address: cidr }, index) => ({ cidr, what: `neighbors[${index}]: ${cidr}` })),
  ].find(({ cidr }) => cidr.includes(':'))?.what;
  if (asked === undefined) return [];
  const disabled = sysctls[disableIpv6] ?? 0;
  return [
    ...(slaac === undefined ? [] : closedToRouters(sysctls)),
    ...(mtu !== undefined && mtu < minIpv6MtuBytes
      ? [`${asked} is IPv6, which needs an mtu of at least ${minIpv6MtuBytes}, and mtu is ${mtu}`]
      : []),
    ...(Number(disabled) === 0 ? [] : [`${asked} is IPv6, and sysctls sets ${disableIpv6} to ${disabled}`]),
  ];
}

/** Returns problems with sysctls that make the kernel ignore router advertisements. Source: Linux `ipv6_accept_ra`. */
function closedToRouters(sysctls: InterfaceSysctls): string[] {
  const closed = slaacSysctls.find((key) => Number(sysctls[key] ?? 1) === 0);
  if (closed !== undefined) return [`slaac: sysctls sets ${closed} to ${sysctls[closed]}`];
  const accepts = sysctls[acceptRa] ?? 2;
  if (Number(sysctls[forwarding] ?? 0) === 0 || Number(accepts) === 2) return [];
  return [
    `slaac: sysctls sets ${forwarding} to ${sysctls[forwarding]}, which needs ${acceptRa} 2, and it is ${accepts}`,
  ];
}

/**
 * Finds routes that are not in the VRF's table, which its traffic would not use, and rules, which the kernel applies before
 * the VRF's table.
 */
function vrfProblems({ vrf, rules: [rule] = [], routes = [] }: VfConfig): string[] {
  if (vrf === undefined) return [];
  const has = `vrf ${vrf.name} has table ${vrf.table}`;
  const ofRules =
    rule === undefined ? [] : [`rules: rules[0] is ${ruleTable.format(rule)}, and ${has}: use one of both`];
  const ofRoutes = routes.flatMap(({ table = vrf.table }, index) => {
    return table === vrf.table ? [] : [`routes[${index}]: table is ${table}, and ${has}`];
  });
  return [...ofRules, ...ofRoutes];
}

/**
 * Finds contradictions between routes. For an interface, the kernel has one route for each destination, table and metric, and
 * would drop another one without an error. It refuses a route whose source address the interface does not have.
 */
function routeProblems({ routes = [], addresses = [], ipam, vrf }: VfConfig): string[] {
  const all = routes.map((route) => {
    const { table = vrf?.table, metric: priority } = route;
    const destination = canonicalCidr(route.destination);
    return { destination, key: routeKey(destination, { table, priority }), path: pathOf(route) };
  });
  const own = addresses.map((cidr) => quickCanonicalAddress(cidr.split('/')[0] ?? ''));
  const connected = connectedRoutes(addresses, vrf?.table);
  return all.flatMap(({ destination, key, path }, index) => {
    const { source } = routes[index] ?? {};
    // A class may have routes but no addresses: its claims add them.
    const isKnown = ipam === undefined && own.length > 0;
    if (isKnown && source !== undefined && !own.includes(quickCanonicalAddress(source))) {
      return [`routes[${index}]: source is ${source}, but addresses has only ${own.join(', ')}`];
    }
    const repeated = findRepeated(gatewaysOf(routes[index]));
    if (repeated !== undefined) return [`routes[${index}]: nextHops has ${repeated} twice: give it a weight instead`];
    const there = connected.find((route) => route.key === key);
    if (there !== undefined && leadsElsewhere(routes[index], there.source)) {
      const what = `the kernel already has a route to ${destination}, the network of ${there.source}`;
      return [`routes[${index}]: ${what}: give this one a metric or a table`];
    }
    const first = all.findIndex((other) => other.key === key);
    if (all[first]?.path === path) return [];
    const same = `has the same destination ${destination}, but another gateway or other settings`;
    return [`routes[${index}]: routes[${first}] ${same}`];
  });
}

function gatewaysOf({ nextHops = [] }: Partial<RouteConfig> = {}): string[] {
  return nextHops.map(({ gateway }) => quickCanonicalAddress(gateway));
}

function findRepeated(values: readonly string[]): string | undefined {
  return values.find((value, index) => values.indexOf(value) !== index);
}

/**
 * Returns the routes that the kernel adds for IPv4 addresses, as in Linux `fib_add_ifaddr`. IPv6 is left out: the kernel's
 * routes have a metric of 256, which differs from the default of routes in a claim.
 */
function connectedRoutes(addresses: readonly string[], table: number | undefined): { key: string; source: string }[] {
  return addresses.flatMap((text) => {
    const { family, prefixLength, octets } = networkOf(parseCidr(text));
    if (family !== AddressFamily.ipv4 || prefixLength === 32 || octets[0] === 0) return [];
    const [address = ''] = text.split('/');
    return [{ key: routeKey(formatCidr(octets, prefixLength), { table }), source: address }];
  });
}

function leadsElsewhere({ gateway, nextHops, source }: Partial<RouteConfig> = {}, address: string): boolean {
  return gateway !== undefined || nextHops !== undefined || (source ?? address) !== address;
}

/** Returns the settings of a route that are not part of its key, in one canonical notation. */
function pathOf({ gateway, nextHops = [], onlink = false, source, scope }: RouteConfig): string {
  const hops: RouteHop[] = gateway === undefined ? nextHops : [{ gateway }];
  const gateways = hops.map((hop) => [quickCanonicalAddress(hop.gateway), hop.weight ?? 1]);
  return JSON.stringify([gateways, onlink, source && quickCanonicalAddress(source), scope]);
}

/**
 * Finds neighbors that the kernel drops when a bond changes its MAC address. Source: Linux `neigh_changeaddr`,
 * `bond_do_fail_over_mac`.
 */
function bondNeighborProblems({ bond, neighbors = [] }: VfConfig): string[] {
  const { name, mode = 'active-backup', failOverMac } = bond ?? {};
  if (bond === undefined || neighbors.length === 0 || mode !== 'active-backup' || failOverMac === 'none') return [];
  const needed = `active-backup bond ${name} keeps neighbors only with bond.failOverMac none`;
  return [`neighbors: ${needed}: the kernel removes them when the bond changes its MAC`];
}

function neighborProblems({ neighbors = [] }: VfConfig): string[] {
  const all = neighbors.map(({ address, macAddress }) => ({ address: quickCanonicalAddress(address), macAddress }));
  return all.flatMap(({ address, macAddress }, index) => {
    const first = all.findIndex((other) => other.address === address);
    const other = all[first]?.macAddress ?? macAddress;
    if (other.toLowerCase() === macAddress.toLowerCase()) return [];
    return [`neighbors[${index}]: ${address} has MAC ${macAddress}, but ${other} in neighbors[${first}]`];
  });
}

/**
 * Returns the fields that request something. `false` and empty lists request nothing: a claim can undo a request of its class
 * with them.
 */
function asked<Field extends keyof VfConfig>(config: VfConfig, fields: readonly Field[]): Field[] {
  return fields.filter((field) => {
    const value = config[field];
    return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false;
  });
}
