import fc from 'fast-check';
import { Address4, Address6 } from 'ip-address';
import { afterAll, describe, expect, it } from 'vitest';
import { resolveVfConfig } from '../../src/driver/api/config.ts';
import { checkKinds } from '../../src/driver/claims/device-resolver.ts';
import { closedFields, DriverError, type VfConfig } from '../../src/driver/model/index.ts';
import { configureLink } from '../../src/driver/vf/configure-link.ts';
import { toVfWanted } from '../../src/driver/vf/vf-wanted.ts';
import { defined } from '../../src/lib/defined.ts';
import {
  formatCidr,
  type Link,
  NetlinkError,
  networkOf,
  parseCidr,
  RtnlConnection,
} from '../../src/node/netlink/index.ts';
import { isMachineRoot } from '../doubles/machine-root.ts';
import { TestNetns } from '../doubles/netns.ts';
import { buildClaim, testDriver } from '../doubles/objects.ts';
import { calm, QuirkyCard } from '../doubles/quirky-card.ts';
import { storedDevice } from '../doubles/stored-claims.ts';
import { routeLimits, routeParameters } from '../doubles/vf-config-arbitraries.ts';
import { readFuzzAmount } from '../fuzz/amount.ts';

const { amount, timeoutMs } = readFuzzAmount(200, 1);
/** The node is in this network. */
const nodeNetwork = '10.1.0.0/16';

interface Limits {
  addressRanges?: string[];
  routes?: string[];
  maxRoutes?: number;
  maxAddresses?: number;
  vlanRanges?: string[];
}
interface Parameters {
  addresses?: string[];
  routes?: { destination: string }[];
  vf?: { vlan: number };
}

/** What every interface that is up has in IPv6. */
const linkLocal = 'fe80::/64';

const vlans = fc.constantFrom(0, 1, 99, 100, 150, 199, 200, 4094);
const limitsOfClass = fc
  .tuple(
    routeLimits,
    fc.record(
      {
        maxAddresses: fc.integer({ min: 0, max: 3 }),
        vlanRanges: fc.subarray(['100-199', '7', '1-4094'], { minLength: 1 }),
      },
      { requiredKeys: [] },
    ),
  )
  .map(([routes, others]): Limits => ({ ...routes, ...others }));
/** Some networks more that the configuration needs, and no VLANs if it has none: otherwise few would be allowed. */
const withOwn = ({ vlanRanges, ...limits }: Limits, asked: readonly Parameters[]): Limits => {
  const networks = asked.flatMap(({ addresses = [] }) => addresses);
  const destinations = asked.flatMap(({ routes = [] }) => routes.map(({ destination }) => destination));
  const more = (list: string[] | undefined, own: string[]) => list && [...list, ...own.map(toNetwork)];
  return {
    ...limits,
    ...defined({
      vlanRanges: asked.some(({ vf }) => vf !== undefined) ? vlanRanges : undefined,
      addressRanges: more(limits.addressRanges, networks),
      routes: more(limits.routes, [...destinations, ...networks.slice(1)]),
    }),
  };
};
const toNetwork = (text: string) => {
  const { octets, prefixLength } = networkOf(parseCidr(text));
  return formatCidr(octets, prefixLength);
};
/** At most two entries of a claim for the same request: what they set adds up. */
const entries = fc.array(
  fc
    .tuple(routeParameters, fc.option(vlans, { nil: undefined }))
    .map(([parameters, vlan]): Parameters => ({ ...parameters, ...(vlan !== undefined && { vf: { vlan } }) })),
  { maxLength: 2 },
);

/** What a VF and its interface have afterwards, read by other programs than the driver's. */
interface Effects {
  addresses: string[];
  /** `isConnected`: added by the kernel for an address. */
  routes: { destination: string; isConnected: boolean }[];
  vlan: number;
}

/** An interface of a pod, and a VF, on which configurations take effect one after the other. */
class Bench implements Disposable {
  readonly #stack = new DisposableStack();
  readonly #own = this.#stack.use(new TestNetns());
  readonly #netns = this.#stack.use(this.#own.open());
  readonly #pod = this.#stack.use(RtnlConnection.open(this.#netns));
  readonly #card = this.#stack.use(new QuirkyCard(calm, {}));

  /** @throws NetlinkError for what the kernel does not take */
  async apply({ routes: wantedRoutes = [], ...config }: VfConfig): Promise<Effects> {
    const link = await this.#emptyLink();
    await configureLink({ connection: this.#pod, writeSysctls: async () => [] }, link, {
      ...config,
      routes: wantedRoutes,
    });
    const vlan = config.vf === undefined ? 0 : await this.#vlanOf(config);
    const [shown, ...routes] = this.#show();
    const addresses = shown?.[0]?.addr_info?.map(({ local }) => local) ?? [];
    return { addresses, routes: routes.flatMap((each, index) => leading(each, index === 1, addresses)), vlan };
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }

  /** Without routes and addresses: a link that is set down loses most of them. */
  async #emptyLink(): Promise<Link> {
    const found = await this.#pod.link({ name: 'net1' });
    if (found === undefined) await this.#pod.createVeth({ name: 'net1', peer: { name: 'net1p' } });
    this.#own.exec('sh', '-c', 'ip link set net1p up; ip link set net1 down; ip addr flush dev net1');
    const link = await this.#pod.link({ name: 'net1' });
    if (link === undefined) throw new Error('net1 was not made');
    return link;
  }

  async #vlanOf(config: VfConfig): Promise<number> {
    const { card, hardware } = this.#card;
    const wanted = toVfWanted(config);
    const before = await hardware.snapshot(card.address(0), { wanted });
    await hardware.configure(card.address(0), wanted, before);
    const vlan = card.info(0)?.vlan?.id ?? 0;
    await hardware.restore(card.address(0), before);
    return vlan;
  }

  /** The addresses, the routes of IPv4, those of IPv6. */
  #show(): Shown[][] {
    const routes = (family: string) => `ip -j ${family} route show table all dev net1`;
    const commands = ['ip -j addr show dev net1', routes('-4'), routes('-6')];
    const lines = this.#own.exec('sh', '-c', commands.join('; echo; ')).trim().split(/\n+/);
    return lines.map((line) => JSON.parse(line));
  }
}

/** Of iproute2, as far as it matters here. */
interface Shown {
  addr_info?: { local: string }[];
  type?: string;
  dst: string;
  protocol: string;
}

/** The routes that lead anywhere: not to the pod's own addresses, and not to groups. */
function leading(shown: readonly Shown[], isIpv6: boolean, addresses: readonly string[]): Effects['routes'] {
  const [all, bits] = isIpv6 ? ['::/0', 128] : ['0.0.0.0/0', 32];
  const unicast = shown.filter(({ type = 'unicast', dst }) => type === 'unicast' && !addresses.includes(dst));
  return unicast.map(({ dst, protocol }) => ({
    destination: dst === 'default' ? all : dst.includes('/') ? dst : `${dst}/${bits}`,
    isConnected: protocol === 'kernel',
  }));
}

/** By another library than the driver's own code. */
function isWithin(inner: string, outer: string): boolean {
  if (inner.includes(':') !== outer.includes(':')) return false;
  return outer.includes(':')
    ? new Address6(inner).isInSubnet(new Address6(outer))
    : new Address4(inner).isInSubnet(new Address4(outer));
}
const isInAny = (inner: string, outer: readonly string[]) => outer.some((each) => isWithin(inner, each));
const overlaps = (one: string, other: string) => isWithin(one, other) || isWithin(other, one);

/** What of the effects the class does not allow, by docs/vfconfig.md. */
function violations({ addresses, routes, vlan }: Effects, limits: Limits, asked: Parameters[]): string[] {
  const { addressRanges, maxRoutes = Infinity, maxAddresses = Infinity, vlanRanges } = limits;
  const asksForLinkLocal = asked.some((each) => each.addresses?.map(toNetwork).includes(linkLocal));
  // One that the kernel has chosen is there in any case.
  const wanted = asked.flatMap((each) => each.addresses ?? []).map((address) => address.split('/')[0]);
  const set = addresses.filter((address) => !isWithin(address, linkLocal) || wanted.includes(address));
  const found: string[] = [];
  const outside = addressRanges && set.find((address) => !isInAny(address, addressRanges));
  if (outside !== undefined) found.push(`has the address ${outside}`);
  if (set.length > maxAddresses) found.push(`has ${set.length} addresses`);
  // Linux adds no route to a network that begins with 0, which an address near it can have; it counts as what it says.
  const inForce = asked.findLast((each) => each.addresses !== undefined)?.addresses ?? [];
  const ofZero = [...new Set(inForce.map(toNetwork))]
    .filter(
      (network) => /^(0\.0\.0\.0|::)\//.test(network) && !routes.some(({ destination }) => destination === network),
    )
    .map((destination) => ({ destination, isConnected: true }));
  const isDefault = (destination: string) => {
    return Number(destination.split('/')[1]) < (destination.includes(':') ? 7 : 8);
  };
  const counted = [...routes, ...ofZero].filter(({ destination, isConnected }) => {
    if (isConnected && destination === linkLocal && !asksForLinkLocal) return false;
    return !(isConnected && !isDefault(destination) && addressRanges && isInAny(destination, addressRanges));
  });
  for (const { destination } of counted) {
    const isAllowed =
      limits.routes === undefined
        ? !isDefault(destination) && !overlaps(destination, nodeNetwork)
        : isInAny(destination, limits.routes);
    if (!isAllowed) found.push(`has a route to ${destination}`);
  }
  if (counted.length > maxRoutes) found.push(`has ${counted.length} routes`);
  const isInRange = (range: string) => {
    const [from = 0, to = from] = range.split('-').map(Number);
    return from <= vlan && vlan <= to;
  };
  if (vlanRanges && !vlanRanges.some(isInRange)) found.push(`has the VLAN ${vlan}`);
  return found;
}

/**
 * What is refused although the kernel would not show it: an entry must hold the limits even if a later one replaces what it
 * sets, and the same address or route counts each time.
 */
function countsMore(asked: readonly Parameters[], refusal = ''): boolean {
  return asked.length > 1 || /limits\.max(Addresses|Routes)/.test(refusal);
}

const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

/** As the driver reads the claim. @throws DriverError */
function resolve(limits: Limits, asked: readonly Parameters[], isChecked = true): VfConfig {
  const object = buildClaim('judged', {
    requests: [{ name: 'vf', deviceClassName: 'limited', devices: ['vf-0'] }],
    config: [
      {
        source: 'FromClass',
        parameters: isChecked ? { ...head, limits } : { ...head, limits: { routes: ['0.0.0.0/0', '::/0'] } },
      },
      ...asked.map((parameters) => ({ source: 'FromClaim' as const, parameters })),
    ],
  });
  const { namespace, name, uid } = object.metadata;
  const claim = { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
  const config = resolveVfConfig(testDriver, claim, 'vf', {
    open: closedFields,
    nodeNetworks: [parseCidr(nodeNetwork)],
  });
  checkKinds(claim, [storedDevice({ driver: testDriver, request: 'vf', config })]);
  return config;
}

describe('the limits of a class', () => {
  const bench = new Bench();
  afterAll(() => bench[Symbol.dispose]());

  it.runIf(isMachineRoot)(
    'reject exactly the configurations whose effects in the kernel exceed the limits',
    async () => {
      const counts = { taken: 0, refused: 0, byKernel: 0 };
      await fc.assert(
        fc.asyncProperty(limitsOfClass, entries, fc.boolean(), async (drawn, asked, isFitted) => {
          const limits = isFitted ? withOwn(drawn, asked) : drawn;
          let refusal: string | undefined;
          try {
            resolve(limits, asked);
          } catch (error) {
            if (!(error instanceof DriverError)) throw error;
            refusal = error.message;
          }
          const effects = await bench.apply(resolve({}, asked, false)).catch((error: unknown) => {
            if (error instanceof NetlinkError) return undefined;
            throw error;
          });
          if (effects === undefined) return void counts.byKernel++;
          counts[refusal === undefined ? 'taken' : 'refused']++;
          const found = violations(effects, limits, asked);
          if ((refusal === undefined) === (found.length === 0)) return;
          if (found.length === 0 && countsMore(asked, refusal)) return;
          throw new Error(
            `limits: ${JSON.stringify(limits)}\neffects: ${JSON.stringify(effects)}\nnot allowed: ${found.join(', ') || 'nothing'}\ndriver: ${refusal ?? 'takes it'}`,
          );
        }),
        amount,
      );
      const { taken, refused, byKernel } = counts;
      process.stdout.write(
        `seed ${amount.seed}: ${taken} configurations taken and ${refused} refused by both, ${byKernel} not by the kernel\n`,
      );
      expect(counts.taken).toBeGreaterThan(5);
      expect(counts.refused).toBeGreaterThan(5);
    },
    timeoutMs,
  );
});
