import fc from 'fast-check';
import type { ClassLimits } from '../../../src/driver/api/class-config.ts';
import { configForDevice, resolveVfConfig } from '../../../src/driver/api/config.ts';
import { checkNesting } from '../../../src/driver/claims/nesting.ts';
import { closedFields, DriverError, type VfConfig } from '../../../src/driver/model/index.ts';
import { toNewRoute } from '../../../src/driver/vf/configure-link.ts';
import type { AllocatedClaim } from '../../../src/framework/kubeletplugin/index.ts';
import { defined } from '../../../src/lib/defined.ts';
import { CniError } from '../../../src/node/cni/index.ts';
import { encodeAddress } from '../../../src/node/netlink/address.ts';
import { encodeBond } from '../../../src/node/netlink/bond.ts';
import { type Cidr, parseCidr } from '../../../src/node/netlink/cidr.ts';
import { neighborTable, ruleTable } from '../../../src/node/netlink/entries.ts';
import { encodeLinkChange, encodeNewLink } from '../../../src/node/netlink/link.ts';
import { encodeRoute } from '../../../src/node/netlink/route.ts';
import { encodeVrf } from '../../../src/node/netlink/vrf.ts';
import { buildClaim, type ConfigOptions, testDriver } from '../../doubles/objects.ts';
import { routeLimits, routeParameters, vfConfigParameters } from '../../doubles/vf-config-arbitraries.ts';
import { expectThat, type FuzzTarget, jsonSeeds, parseJson } from '../target.ts';

const base = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

const nodeNetworks = [parseCidr('10.1.0.5/16'), parseCidr('2001:db8:1::5/64')];

function claimWith(config: ConfigOptions[]): AllocatedClaim {
  const object = buildClaim('fast-net', { uid: 'uid-1', requests: [{ name: 'vf', devices: ['dev-1'] }], config });
  const { namespace, name, uid } = object.metadata;
  return { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
}

/** Values accepted at prepare must be applicable later, in the hook: there it would be too late to refuse them. */
function applyLater({
  addresses = [],
  routes = [],
  rules = [],
  neighbors = [],
  interfaceName,
  mtu,
  macAddress,
  bond,
  vrf,
}: ReturnType<typeof resolveVfConfig>) {
  try {
    for (const address of addresses) encodeAddress(1, address);
    for (const route of routes) encodeRoute({ ...toNewRoute(route), index: 1 });
    for (const rule of rules) ruleTable.encode(rule, 1);
    for (const neighbor of neighbors) neighborTable.encode(neighbor, 1);
    if (bond !== undefined) {
      const { name, mode = 'active-backup', miimon: miimonMs, arpInterval: arpIntervalMs, ...options } = bond;
      encodeNewLink({ name }, 'bond', encodeBond({ mode, ...defined({ ...options, miimonMs, arpIntervalMs }) }));
    }
    if (vrf !== undefined) encodeNewLink({ name: vrf.name }, 'vrf', encodeVrf(vrf.table));
    encodeLinkChange(1, {
      ...(interfaceName === undefined ? {} : { name: interfaceName }),
      ...(mtu === undefined ? {} : { mtuBytes: mtu }),
      ...(macAddress === undefined ? {} : { hardwareAddress: macAddress }),
    });
  } catch (error) {
    expectThat(false, `the configuration was taken, but cannot be applied: ${(error as Error).message}`);
  }
}

/** First and last address of a network. */
function spanOf({ octets, prefixLength }: Cidr): [bigint, bigint] {
  const bits = 8 * octets.length;
  const value = BigInt(`0x${Buffer.from(octets).toString('hex')}`);
  const hosts = 1n << BigInt(bits - prefixLength);
  // Both families in one space, far apart.
  const first = (value / hosts) * hosts + (bits === 32 ? 1n << 200n : 0n);
  return [first, first + hosts - 1n];
}

/** What an accepted claim reaches with its routes and with the networks of its addresses is within the class's limits. */
function checkReached(ofClass: { limits?: ClassLimits } | undefined, claim: VfConfig | undefined): void {
  const { routes, addressRanges, maxRoutes = Number.POSITIVE_INFINITY } = ofClass?.limits ?? {};
  const isIn = (network: Cidr, ranges: string[]) =>
    ranges.some((range) => {
      const [[first, last], [from, to]] = [spanOf(network), spanOf(parseCidr(range))];
      return from <= first && last <= to;
    });
  const ofAddresses = (claim?.addresses ?? []).map(parseCidr).filter((cidr) => {
    const [first, last] = spanOf(cidr);
    return first !== last && !(addressRanges !== undefined && cidr.prefixLength > 1 && isIn(cidr, addressRanges));
  });
  const reached = [...(claim?.routes ?? []).map(({ destination }) => parseCidr(destination)), ...ofAddresses];
  expectThat(reached.length <= maxRoutes, `${reached.length} routes were taken, and maxRoutes is ${maxRoutes}`);
  for (const network of reached) {
    const [first, last] = spanOf(network);
    const isOfNode = nodeNetworks.map(spanOf).some(([from, to]) => from <= last && first <= to);
    const isFine = routes === undefined ? network.prefixLength > 1 && !isOfNode : isIn(network, routes);
    expectThat(isFine, `a route to ${network.octets.join('.')}/${network.prefixLength} was taken`);
  }
}

/** Opaque parameters: `{ class, claim, open }`, the first two being the contents of a DeviceClass and a claim. */
export const target: FuzzTarget = {
  name: 'vf-config',
  errors: [DriverError, CniError],
  shape: 'json',
  generated: fc
    .oneof(
      fc.record({ class: vfConfigParameters, claim: vfConfigParameters, open: fc.boolean() }, { requiredKeys: [] }),
      fc.record({ class: routeLimits.map((limits) => ({ ...base, limits })), claim: routeParameters }),
    )
    .map((value) => Buffer.from(JSON.stringify(value))),
  dictionary: [
    '__proto__',
    'constructor',
    '"vf":{',
    'net.ipv4.conf.IFNAME.arp_ignore',
    '%d',
    '\\u0000',
    '1e400',
    '[[[',
  ],
  seeds: () =>
    jsonSeeds(
      { claim: base },
      {
        class: { ...base, mtu: 9000, interfaceName: 'net%d', vf: { vlan: 7, qos: 3, trust: true, maxTxRate: 100 } },
        claim: { ...base, addresses: ['192.0.2.7/24', '2001:db8::7/64'], vf: { vlan: 8, linkState: 'enable' } },
      },
      {
        claim: {
          ...base,
          macAddress: '02:00:00:00:00:01',
          routes: [{ destination: '0.0.0.0/0', gateway: '192.0.2.1' }, { destination: '2001:db8::/32' }],
          sysctls: { 'net.ipv4.conf.IFNAME.arp_ignore': 1, 'net.ipv6.conf.IFNAME.accept_ra': '0' },
        },
        open: true,
      },
      { claim: { ...base, driver: 'vfio-pci', vhost: true }, open: true },
      { class: { ...base, attach: 'observe' } },
      { claim: { ...base, bond: { name: 'bond0', mode: '802.3ad', miimon: 100 } }, open: true },
      { claim: { ...base, bond: { name: 'bond0', failOverMac: 'none' } } },
      {
        class: {
          ...base,
          vf: { vlan: 100 },
          overridable: ['vf.vlan', 'mtu'],
          limits: {
            allowedNamespaces: {
              names: ['a'],
              selector: { matchExpressions: [{ key: 'b', operator: 'In', values: ['c'] }] },
            },
            vlanRanges: ['100-199', '300'],
            addressRanges: ['192.0.2.0/24', '2001:db8::/32'],
            routes: ['198.51.100.0/24'],
            maxDevices: 1,
            maxAddresses: 2,
            maxRoutes: 1,
          },
        },
        claim: {
          ...base,
          vf: { vlan: 300 },
          mtu: 1400,
          addresses: ['192.0.2.7/24'],
          routes: [{ destination: '198.51.100.0/25', gateway: '192.0.2.1' }],
        },
      },
      {
        class: { ...base, limits: { addressRanges: ['192.0.2.0/24'], routes: ['198.51.100.0/24'], maxRoutes: 0 } },
        claim: { ...base, addresses: ['192.0.2.10/1'] },
      },
      { claim: { ...base, addresses: ['10.1.99.99/8', '2001:db8::1/1'] } },
      {
        class: {
          ...base,
          attach: 'cni',
          cni: { cniVersion: '1.0.0', name: 'fast', plugins: [{ type: 'sriov', ipam: { type: 'host-local' } }] },
        },
      },
      { claim: { ...base, ipam: { type: 'static', addresses: [{ address: '192.0.2.9/24' }] } }, open: true },
      { class: { ...base, attach: 'cni', networkAttachmentDefinition: { name: 'fast', namespace: 'default' } } },
    ),
  run(input) {
    const value = parseJson(input) as { class?: object; claim?: object; open?: unknown } | null | undefined;
    if (typeof value !== 'object' || value === null) return;
    const entries: ConfigOptions[] = [];
    if (Object.hasOwn(value, 'claim')) entries.push({ source: 'FromClaim', parameters: value.claim as object });
    if (Object.hasOwn(value, 'class')) entries.push({ source: 'FromClass', parameters: value.class as object });
    const claim = claimWith(entries);
    checkNesting(testDriver, claim);
    const config = resolveVfConfig(testDriver, claim, 'vf', {
      open: value.open ? closedFields : [],
      nodeNetworks,
    });
    checkReached(value.class as never, value.claim as never);
    // The store keeps it as JSON.
    JSON.stringify(config);
    applyLater(configForDevice(config, 'default/fast-net', 1, 1));
  },
};
