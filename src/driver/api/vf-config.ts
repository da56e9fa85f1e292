import * as z from 'zod';
import {
  interfaceSysctlPattern,
  isNetwork,
  type Neighbor,
  parseCidr,
  type RouteHop,
  type Rule,
} from '../../node/netlink/index.ts';
import {
  type AddressPoolConfig,
  attachModes,
  type OffloadSizes,
  type RouteConfig,
  type SlaacConfig,
  type VfConfig,
  type VfSettings,
  type VrfConfig,
} from '../model/index.ts';
import { poolLabel } from './address-pool.ts';
import { bond } from './bond-config.ts';
import { deviceFiles } from './device-files-config.ts';
import { dialectsSchema } from './dialects-config.ts';
import { ethtool } from './ethtool-config.ts';
import type { FieldsOf } from './fields-of.ts';
import {
  checked,
  isCidr,
  isHostAddress,
  isInterfaceAddress,
  isInterfaceName,
  isIpAddress,
  isMacAddress,
  linkName,
} from './text-checks.ts';

export const kubernetesName = z
  .string()
  .regex(/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/, 'must be the name of an object: lower case, "-" and "."');

const networkAttachmentDefinition = z
  .strictObject({
    name: kubernetesName,
    namespace: kubernetesName.describe('Namespace of the definition. Default: that of the claim.').optional(),
  })
  .describe('With attach cni: the NetworkAttachmentDefinition that has the network configuration in its spec.config.');

const vfProperties = z
  .strictObject({
    vlan: z.int().min(0).max(4094).describe('VLAN id; 0: no tag.').optional(),
    qos: z.int().min(0).max(7).describe('VLAN priority.').optional(),
    vlanProto: z.enum(['802.1q', '802.1ad']).describe('Kind of VLAN tag. Default: 802.1q.').optional(),
    spoofCheck: z.boolean().describe("Whether the card drops frames whose source MAC is not the VF's.").optional(),
    trust: z.boolean().describe('Whether the VF may change its MAC and listen to all frames.').optional(),
    linkState: z
      .enum(['auto', 'enable', 'disable'])
      .describe("Link state that the VF sees: the card's, always up, or always down.")
      .optional(),
    minTxRate: z.int().min(0).max(0xfffffffe).describe('Guaranteed transmit rate, Mbit/s; 0: none.').optional(),
    maxTxRate: z.int().min(0).max(0xfffffffe).describe('Maximum transmit rate, Mbit/s; 0: no limit.').optional(),
  } satisfies FieldsOf<VfSettings>)
  .describe('Settings of the VF at its PF.');

const sysctlValueRule = 'must be a number, or a text of at most 128 letters, digits and " .,:_-"';
const sysctls = z
  .record(
    z.string().regex(interfaceSysctlPattern),
    z.union([z.int(), z.string().regex(/^[\w:., -]{1,128}$/, sysctlValueRule)], {
      error: sysctlValueRule,
    }),
    {
      error: ({ code }) =>
        code === 'invalid_key' ? 'must be net.(ipv4|ipv6).(conf|neigh).IFNAME.<key>, with IFNAME as it is' : undefined,
    },
  )
  .describe(
    'Kernel settings of the interface, in the network namespace of the pod, such as net.ipv4.conf.IFNAME.arp_ignore.',
  );

export const network = checked(
  'network',
  (text) => isCidr(text) && isNetwork(parseCidr(text)),
  'a network with prefix length and no host bits, such as 0.0.0.0/0',
);

const ipAddress = checked('ip', isIpAddress, 'an IPv4 or IPv6 address');
const hostAddress = checked('host-address', isHostAddress, 'an IPv4 or IPv6 address of a host');

/** Number of a routing table. The kernel itself fills `default`, `main` and `local` (253 to 255). */
const routingTable = z
  .int()
  .min(1)
  .max(0xffffffff)
  .refine((table) => table < 253 || table > 255, 'must be none of 253 to 255, the tables of the kernel')
  .meta({ format: 'routing-table' });

const nextHop = z.strictObject({
  gateway: hostAddress,
  weight: z
    .int()
    .min(1)
    .max(256)
    .describe('Share of the connections, in proportion to the others. Default: 1.')
    .optional(),
} satisfies FieldsOf<RouteHop>);

const route = z
  .strictObject({
    destination: network,
    gateway: hostAddress.optional(),
    nextHops: z
      .array(nextHop)
      .min(2)
      .max(8)
      .describe('Several gateways, in place of gateway, over which the kernel spreads connections.')
      .optional(),
    onlink: z
      .boolean()
      .describe('The gateways are on the link, although no network of an address has them.')
      .optional(),
    source: hostAddress.describe('Source address of packets whose sender chooses none.').optional(),
    scope: z
      .enum(['global', 'link'])
      .describe('For IPv4. Default: global with a gateway, link without one.')
      .optional(),
    table: routingTable.describe('Routing table. Default: that of the VRF, or the main one.').optional(),
    metric: z
      .int()
      .min(1)
      .max(0xffffffff)
      .describe('Of several routes to a destination the one with the lowest metric counts. Default: 0, for IPv6 1024.')
      .optional(),
  } satisfies FieldsOf<RouteConfig>)
  .superRefine((value, { addIssue }) => {
    for (const [path, message] of routeFaults(value)) addIssue({ code: 'custom', path, message });
  })
  .meta({ format: 'route' });

function routeFaults({
  destination,
  gateway,
  nextHops,
  onlink,
  source,
  scope,
}: RouteConfig): [PropertyKey[], string][] {
  const isIpv6 = destination.includes(':');
  const otherVersion = 'must be of the same IP version as the destination';
  const addresses: [PropertyKey[], string | undefined][] = [
    [['gateway'], gateway],
    [['source'], source],
    ...(nextHops ?? []).map((hop, index): [PropertyKey[], string] => [['nextHops', index, 'gateway'], hop.gateway]),
  ];
  const faults = addresses
    .filter(([, address]) => address !== undefined && address.includes(':') !== isIpv6)
    .map(([path]): [PropertyKey[], string] => [path, otherVersion]);
  const isDirect = gateway === undefined && nextHops === undefined;
  if (gateway !== undefined && nextHops !== undefined) faults.push([['nextHops'], 'cannot be combined with gateway']);
  if (onlink !== undefined && isDirect) faults.push([['onlink'], 'needs gateway or nextHops']);
  if (scope !== undefined && isIpv6) faults.push([['scope'], 'is for IPv4 only']);
  if (scope === 'link' && !isDirect) faults.push([['scope'], 'must be global, for a route by gateways']);
  return faults;
}

const rule = z
  .strictObject({
    priority: z.int().min(1).max(32_765).describe('The kernel looks at rules with a low number first.'),
    source: network.optional(),
    destination: network.optional(),
    table: routingTable,
  } satisfies FieldsOf<Rule>)
  .refine(({ source, destination }) => source !== undefined || destination !== undefined, 'needs source or destination')
  .refine(({ source = '', destination = source }) => !source || source.includes(':') === destination.includes(':'), {
    path: ['destination'],
    error: 'must be of the same IP version as the source',
  })
  .meta({ format: 'rule' });

const vrf = z
  .strictObject({
    name: linkName.describe('Name of the VRF in the pod. Interfaces of all its claims with the same VRF are in it.'),
    table: routingTable.describe('Routing table of the VRF, which has the routes of its interfaces.'),
  } satisfies FieldsOf<VrfConfig>)
  .describe('VRF that the interface is in, with a routing table for its own traffic.');

const neighbor = z.strictObject({
  address: ipAddress,
  macAddress: checked('mac-address', isMacAddress, 'six octets with colons, neither a multicast address nor zero'),
} satisfies FieldsOf<Neighbor>);

/** Largest packet in bytes, at most `GSO_MAX_SIZE` of Linux `netdevice.h`. */
const offloadSize = z.int().min(4096).max(524_280).optional();

const offloadLimits = z
  .strictObject({
    gsoMaxBytes: offloadSize,
    groMaxBytes: offloadSize,
    gsoMaxBytesIpv4: offloadSize,
    groMaxBytesIpv4: offloadSize,
  } satisfies FieldsOf<OffloadSizes>)
  .describe('Bytes of the largest packets that the kernel passes to the interface, or makes of received ones.');

const addressPool = z
  .strictObject({
    name: poolLabel.describe('The NetworkAddressPool.').optional(),
    key: poolLabel
      .describe('Who keeps the addresses, unique in the namespace. Default: the pod of a StatefulSet.')
      .optional(),
  } satisfies FieldsOf<AddressPoolConfig>)
  .describe('One address of each IP version from a NetworkAddressPool, and a MAC address, which stay.');

const slaac = z
  .strictObject({
    waitSeconds: z
      .int()
      .min(0)
      .max(30)
      .describe('Seconds that containers wait for the first address; 0: they start without it.'),
    defaultRoute: z.boolean().describe('Whether the pod takes default routes from routers. Default: false.').optional(),
  } satisfies FieldsOf<SlaacConfig>)
  .describe('IPv6 addresses and routes from routers of the network.');

/**
 * Settings of a claim or a DeviceClass for its VFs: opaque parameters of kind `VFConfig`, `netdra.dev/v1alpha1`. All fields
 * are optional; an absent field leaves the VF unchanged. Described for users in docs/vfconfig.md.
 */
export const vfConfigSchema = z.strictObject({
  apiVersion: z.literal('netdra.dev/v1alpha1'),
  kind: z.literal('VFConfig'),
  attach: z
    .enum(attachModes)
    .describe('What moves the VF into the pod: netdra, a chain of CNI plugins, or another component such as Multus.')
    .optional(),
  cni: z
    .record(z.string(), z.unknown())
    .describe('With attach cni: the network configuration, a list of plugins or a single one.')
    .optional(),
  networkAttachmentDefinition: networkAttachmentDefinition.optional(),
  ipam: z
    .record(z.string(), z.unknown())
    .describe('CNI IPAM plugin that assigns addresses and routes: the `ipam` section of a network configuration.')
    .optional(),
  driver: z
    .string()
    .max(64)
    .regex(/^(kernel|[a-z0-9_-]*vfio[a-z0-9_-]*)$/, 'must be kernel, vfio-pci, or a variant such as mlx5_vfio_pci')
    .describe('Kernel driver of the VF: its own one, for a network interface, or vfio-pci or a variant, for DPDK.')
    .optional(),
  vhost: z.boolean().describe('Containers also get /dev/vhost-net and /dev/net/tun.').optional(),
  rdma: z.boolean().describe("Containers also get the character devices of the VF's RDMA device.").optional(),
  deviceFiles: deviceFiles.optional(),
  numa: z
    .enum(['report', 'require'])
    .describe('Containers with exclusive CPUs on other NUMA nodes than the VF: are reported, the default, or refused.')
    .optional(),
  vf: vfProperties.optional(),
  interfaceName: z
    .string()
    .refine(
      (name) => isInterfaceName(name),
      '1 to 15 bytes of ASCII, no blank, "/" or ":", "%" only in one "%d"; not "all" or "default"',
    )
    .meta({ format: 'interface-name' })
    .describe('Name in the pod. `%d` becomes the index of the device within its request.')
    .optional(),
  mtu: z.int().min(68).max(65_535).describe('MTU in bytes.').optional(),
  macAddress: checked(
    'mac-address',
    isMacAddress,
    'six octets with colons, neither a multicast address nor zero',
  ).optional(),
  addresses: z
    .array(checked('interface-address', isInterfaceAddress, 'an address with prefix length, such as 192.0.2.7/24'))
    .max(16)
    .describe('Interface addresses with prefix length, IPv4 and IPv6.')
    .optional(),
  addressPool: addressPool.optional(),
  slaac: slaac.optional(),
  routes: z.array(route).max(64).describe('Routes through the VF.').optional(),
  rules: z.array(rule).max(64).describe('Which traffic of the pod uses which routing table.').optional(),
  vrf: vrf.optional(),
  neighbors: z
    .array(neighbor)
    .max(64)
    .describe('MAC addresses of hosts on the link, which the kernel then does not ask for.')
    .optional(),
  sysctls: sysctls.optional(),
  allMulticast: z.boolean().describe('Whether the interface receives all multicast frames of its network.').optional(),
  promiscuous: z.boolean().describe('Whether the interface receives all frames of its network.').optional(),
  offloadLimits: offloadLimits.optional(),
  ethtool: ethtool.optional(),
  bond: bond.optional(),
  keepHostConfig: z
    .boolean()
    .describe('Whether a whole NIC keeps the addresses and routes that the host has given it.')
    .optional(),
  dialects: dialectsSchema.optional(),
} satisfies FieldsOf<VfConfig & { apiVersion: string; kind: string }>);
