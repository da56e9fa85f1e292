import { describe, expect, it } from 'vitest';
import type { VfConfig } from '../../src/driver/model/index.ts';
import { type Difference, findDifferences } from '../../src/driver/vf/claim-differences.ts';
import { configureLink, type LinkConfig } from '../../src/driver/vf/configure-link.ts';
import {
  type InterfaceSysctls,
  KernelNetworks,
  type NetworkState,
  toNetworkState,
} from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { advertise } from '../doubles/router.ts';

/** A pod's namespace with net1, and one with p1, the other end of its network. */
class Network implements Disposable {
  readonly #stack = new DisposableStack();
  readonly pod = this.#stack.use(new TestNetns('pod'));
  readonly peer = this.#stack.use(new TestNetns('peer'));
  readonly #networks = this.#stack.use(new KernelNetworks({ procSysDir: '/proc/sys' }));

  constructor() {
    const { path } = this.peer;
    this.pod.exec('sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/disable_ipv6');
    this.pod.exec('ip', 'link', 'add', 'net1', 'type', 'veth', 'peer', 'name', 'p1', 'netns', path);
    this.peer.exec('ip', 'link', 'set', 'p1', 'up');
  }

  async configure(config: LinkConfig): Promise<void> {
    using namespace = this.#networks.open(this.pod.path);
    const link = await namespace?.connection.link({ name: 'net1' });
    if (namespace === undefined || link === undefined) throw new Error('net1 was not made');
    await configureLink(namespace, link, config);
  }

  /** What the driver finds to be different from the claim. */
  async differences(config: LinkConfig): Promise<Difference[]> {
    using namespace = this.#networks.open(this.pod.path);
    if (namespace === undefined) throw new Error('the pod has no namespace');
    return await findDifferences(namespace, 'net1', config as VfConfig);
  }

  /** Returns what the metadata would have. */
  async state(): Promise<NetworkState> {
    using namespace = this.#networks.open(this.pod.path);
    const link = await namespace?.connection.link({ name: 'net1' });
    if (namespace === undefined || link === undefined) throw new Error('the pod has no net1');
    return toNetworkState(link, await namespace.connection.addresses(link.index));
  }

  /** What a router, or who claims to be one, tells all hosts of the network. */
  async advertise(...prefixes: string[]): Promise<void> {
    // Until duplicate address detection is over, the kernel takes no advertisement.
    const usable = () => this.#addresses('-6', 'addr', 'show', 'dev', 'net1', 'scope', 'link', '-tentative');
    await expect.poll(usable).toHaveLength(1);
    const [{ ifindex: index, address: hardwareAddress }] = this.peer.ip('link', 'show', 'dev', 'p1');
    using netns = this.peer.open();
    advertise(netns, { index, hardwareAddress }, prefixes.length === 0 ? ['2001:db8:bad::/64'] : prefixes);
    const received = () => this.pod.exec('cat', '/proc/net/dev_snmp6/net1');
    await expect.poll(received).toMatch(/^Icmp6InRouterAdvertisements\s+[1-9]/m);
  }

  /** IPv6 addresses, also those that are not usable yet. */
  addresses(scope = 'global'): string[] {
    return this.#addresses('-6', 'addr', 'show', 'dev', 'net1', 'scope', scope);
  }

  #addresses(...args: string[]): string[] {
    const shown: { addr_info?: { local?: string }[] }[] = this.pod.ip(...args);
    // `ip` prints an empty object for an address that its filter leaves out.
    return shown.flatMap(({ addr_info = [] }) => addr_info.flatMap(({ local }) => local ?? []));
  }

  routes(): string[] {
    return this.pod.ip('-6', 'route', 'show', 'dev', 'net1').map(({ dst }: { dst: string }) => dst);
  }

  addRoutes(to: string, count: number, hops = 0): void {
    const path = hops === 0 ? `dev ${to}` : `nexthop dev ${to} `.repeat(hops);
    const lines = `for (n = 0; n < ${count}; n++) printf "route add 10.%d.%d.%d/32 ${path}\\n", n / 65536, n / 256 % 256, n % 256`;
    this.pod.exec('sh', '-c', `awk 'BEGIN { ${lines} }' | ip -batch -`);
  }

  sysctl(key: string): string {
    return this.pod.exec('cat', `/proc/sys/net/${key}`).trim();
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }
}

describe('configureLink on an interface that receives router advertisements', () => {
  it.each([
    ['IPv4 addresses', { addresses: ['192.0.2.10/24'] }, []],
    ['IPv6 addresses', { addresses: ['2001:db8::10/64'] }, ['2001:db8::10']],
    ['no addresses', {}, []],
    ['its own sysctl', { sysctls: { 'net.ipv4.conf.IFNAME.arp_ignore': 1 } }, []],
  ])('adds neither advertised addresses nor a default route for a claim with %s', async (_what, config, expected) => {
    using network = new Network();
    await network.configure(config);
    await network.advertise();
    expect(network.addresses()).toEqual(expected);
    expect(network.routes()).not.toContain('default');
    expect(network.routes()).not.toContain('2001:db8:bad::/64');
  });

  it('accepts addresses and a default route from a router if the claim sets accept_ra and autoconf', async () => {
    using network = new Network();
    const sysctls = { 'net.ipv6.conf.IFNAME.accept_ra': 1, 'net.ipv6.conf.IFNAME.autoconf': '1' };
    await network.configure({ addresses: ['192.0.2.10/24'], sysctls });
    await network.advertise();
    await expect.poll(() => network.addresses()).toEqual([expect.stringMatching(/^2001:db8:bad::?/)]);
    await expect.poll(() => network.routes()).toContain('default');
  });
});

describe('configureLink with slaac', () => {
  const slaac = { waitSeconds: 5 };
  const advertised = expect.stringMatching(/^2001:db8:bad:.*\/64$/);

  it.each([
    ['no default route', false, { slaac }],
    ['a default route on request', true, { slaac: { ...slaac, defaultRoute: true } }],
  ])('takes an address and %s from a router, even if the pod forwards packets', async (_what, hasDefault, config) => {
    using network = new Network();
    const keys = ['all/forwarding', 'net1/disable_ipv6'];
    for (const key of keys) network.pod.exec('sh', '-c', `echo 1 >/proc/sys/net/ipv6/conf/${key}`);
    await network.configure({ ...config, addresses: ['192.0.2.10/24', '2001:db8::10/64'] });
    expect((await network.state()).isAutoconfigured).toBeUndefined();
    await network.advertise();
    await expect.poll(async () => (await network.state()).isAutoconfigured).toBe(true);
    expect((await network.state()).ips).toEqual(['192.0.2.10/24', '2001:db8::10/64', advertised]);
    // The kernel adds the routes of an advertisement before its addresses.
    expect(network.routes()).toContain('2001:db8:bad::/64');
    expect(network.routes().includes('default')).toBe(hasDefault);
    expect(await network.differences(config)).toEqual([]);
  });

  it('leaves temporary addresses out of the metadata', async () => {
    using network = new Network();
    await network.configure({ slaac, sysctls: { 'net.ipv6.conf.IFNAME.use_tempaddr': 2 } });
    await network.advertise();
    await expect.poll(() => network.addresses()).toHaveLength(2);
    await expect.poll(async () => (await network.state()).tentative).toBe(false);
    expect((await network.state()).ips).toEqual([advertised]);
  });

  it("keeps the claim's addresses in the metadata, whatever the network advertises", async () => {
    using network = new Network();
    const addresses = ['192.0.2.10/24', '192.0.2.11/24', '192.0.2.12/24', 'fd00::10/64'];
    await network.configure({ slaac, addresses });
    const prefixes = Array.from({ length: 40 }, (_, index) => `2001:db8:bad:${index.toString(16)}::/64`);
    await network.advertise('2000::/3', ...prefixes);
    // With the link-local address the kernel has 16 IPv6 addresses, and then makes no others.
    await expect.poll(() => network.addresses()).toHaveLength(15);
    await expect.poll(async () => (await network.state()).tentative).toBe(false);
    const { ips } = await network.state();
    expect(ips).toHaveLength(16);
    expect(ips).toEqual(expect.arrayContaining(addresses));
    // The kernel adds routes to any networks, so that no default route is no protection.
    expect(network.routes()).toContain('2000::/3');
  });
});

describe('configureLink on a node that disables IPv6 for new interfaces', () => {
  it('adds the IPv6 addresses of the claim', async () => {
    using network = new Network();
    network.pod.exec('sh', '-c', 'echo 1 >/proc/sys/net/ipv6/conf/net1/disable_ipv6');
    await network.configure({ addresses: ['192.0.2.10/24', '2001:db8::10/64'] });
    expect(network.addresses()).toEqual(['2001:db8::10']);
  });

  it('keeps IPv6 disabled for a claim without IPv6 addresses and routes', async () => {
    using network = new Network();
    network.pod.exec('sh', '-c', 'echo 1 >/proc/sys/net/ipv6/conf/net1/disable_ipv6');
    await network.configure({ addresses: ['192.0.2.10/24'] });
    expect(network.sysctl('ipv6/conf/net1/disable_ipv6')).toBe('1');
  });
});

describe('configureLink in a namespace whose interfaces announce addresses', () => {
  const keys = ['ipv4/conf/net1/arp_notify', 'ipv6/conf/net1/ndisc_notify'];

  it("turns the kernel's address announcements off, because netdra sends its own", async () => {
    using network = new Network();
    for (const key of keys) network.pod.exec('sh', '-c', `echo 1 >/proc/sys/net/${key}`);
    await network.configure({ addresses: ['192.0.2.10/24', '2001:db8::10/64'] });
    expect(keys.map((key) => network.sysctl(key))).toEqual(['0', '0']);
  });

  it("keeps a kernel announcement on if the claim's sysctls enable it", async () => {
    using network = new Network();
    await network.configure({ sysctls: { 'net.ipv4.conf.IFNAME.arp_notify': 1 } });
    expect(keys.map((key) => network.sysctl(key))).toEqual(['1', '0']);
  });
});

// The kernel copies the settings of the node's namespace into new ones, and nodes of a cluster forward packets.
describe('configureLink in a namespace that forwards packets', () => {
  /** How the pod routes a packet of the VF's network to another network that it has. */
  const routed = ({ pod }: Network) =>
    pod.exec('sh', '-c', 'ip route get 198.51.100.7 from 192.0.2.99 iif net1 2>&1 || true');
  const configure = async (network: Network, sysctls: InterfaceSysctls = {}) => {
    const { pod } = network;
    pod.exec('sh', '-c', 'echo 1 >/proc/sys/net/ipv4/ip_forward');
    pod.exec('ip', 'link', 'add', 'cluster', 'type', 'veth', 'peer', 'name', 'node');
    for (const name of ['cluster', 'node']) pod.exec('ip', 'link', 'set', name, 'up');
    pod.exec('ip', 'addr', 'add', '198.51.100.1/24', 'dev', 'cluster');
    await network.configure({ addresses: ['192.0.2.10/24'], sysctls });
  };

  it("lets hosts of the VF's network reach no other network through the pod", async () => {
    using network = new Network();
    await configure(network);
    expect(routed(network)).toMatch(/No route to host/);
    expect(network.sysctl('ipv4/conf/cluster/forwarding')).toBe('1');
  });

  it("forwards packets if the class's sysctls enable forwarding", async () => {
    using network = new Network();
    await configure(network, { 'net.ipv4.conf.IFNAME.forwarding': 1 });
    expect(routed(network)).toMatch(/198\.51\.100\.7 from 192\.0\.2\.99 dev cluster/);
  });
});

it('configureLink on a node without IPv6 skips IPv6 settings', async () => {
  using network = new Network();
  // The kernel removes them from an interface whose MTU is below 1280.
  await network.configure({ mtu: 1200, addresses: ['192.0.2.10/24'] });
  expect(() => network.sysctl('ipv6/conf/net1/accept_ra')).toThrow(/accept_ra failed/);
  expect(network.pod.ip('addr', 'show', 'dev', 'net1')[0]).toMatchObject({ mtu: 1200, operstate: 'UP' });
});

describe('findDifferences', () => {
  const config: LinkConfig = {
    addresses: ['192.0.2.10/24', '2001:db8::10/64'],
    allMulticast: true,
    promiscuous: true,
    offloadLimits: { gsoMaxBytes: 32_768, groMaxBytes: 32_000 },
    routes: [
      { destination: '198.51.100.0/24', gateway: '192.0.2.1' },
      { destination: '2001:DB8:1::/48', gateway: '2001:db8::1', source: '2001:DB8:0::10' },
      { destination: '203.0.113.0/24' },
      { destination: '0.0.0.0/0', gateway: '192.0.2.1', table: 100, source: '192.0.2.10' },
      { destination: '2001:db8:2::/48', nextHops: [{ gateway: '2001:db8::1' }, { gateway: '2001:DB8::2' }] },
    ],
    rules: [
      { priority: 100, source: '192.0.2.10/32', table: 100 },
      { priority: 101, source: '2001:DB8::10/128', destination: '2001:db8:3::/48', table: 1000 },
      { priority: 102, destination: '0.0.0.0/0', table: 100 },
    ],
    neighbors: [
      { address: '192.0.2.77', macAddress: '02:00:00:00:00:AA' },
      { address: '2001:DB8::77', macAddress: '02:00:00:00:00:bb' },
    ],
    sysctls: {
      'net.ipv4.conf.IFNAME.arp_ignore': '0x1',
      'net.ipv4.conf.IFNAME.rp_filter': '02',
      'net.ipv4.neigh.IFNAME.base_reachable_time_ms': 30_001,
      'net.ipv4.neigh.IFNAME.retrans_time_ms': 1_003,
      'net.ipv4.neigh.IFNAME.locktime': 33,
      'net.ipv6.conf.IFNAME.stable_secret': '2001:db8::77',
    },
  };

  it('finds no difference on a freshly configured interface, however the claim and the kernel write values', async () => {
    using network = new Network();
    for (let round = 0; round < 2; round++) await network.configure(config);
    expect(network.pod.exec('ip', 'rule', 'show')).toMatch(/^100:\s+from 192\.0\.2\.10 lookup 100 *$/m);
    expect(network.pod.exec('ip', '-6', 'rule', 'show')).toMatch(
      /^101:\s+from 2001:db8::10 to 2001:db8:3::\/48 lookup 1000 *$/m,
    );
    expect(network.pod.exec('ip', 'neigh', 'show', 'dev', 'net1')).toContain(
      '192.0.2.77 lladdr 02:00:00:00:00:aa PERMANENT',
    );
    expect(await network.differences(config)).toEqual([]);
    expect(await network.differences({})).toEqual([]);
  });

  it('names routes that are missing and settings that have changed', async () => {
    using network = new Network();
    await network.configure(config);
    for (const route of [['198.51.100.0/24'], ['-6', '2001:db8:1::/48']])
      network.pod.exec('ip', ...route.slice(0, -1), 'route', 'del', route.at(-1) ?? '');
    network.pod.exec('ip', 'route', 'change', 'default', 'via', '192.0.2.9', 'table', '100');
    network.pod.exec('ip', '-6', 'route', 'del', '2001:db8:2::/48', 'via', '2001:db8::2');
    network.pod.exec('ip', 'rule', 'del', 'priority', '102');
    // An entry that the kernel learns again is no longer the claim's.
    network.pod.exec(
      'ip',
      'neigh',
      'change',
      '192.0.2.77',
      'lladdr',
      '02:00:00:00:00:aa',
      'nud',
      'stale',
      'dev',
      'net1',
    );
    network.pod.exec('ip', 'link', 'set', 'lo', 'up');
    // The same destination by another interface, and a part of it by its own, are other routes.
    network.pod.exec('ip', 'route', 'add', '198.51.100.0/24', 'dev', 'lo');
    network.pod.exec('ip', 'route', 'add', '198.51.100.0/25', 'dev', 'net1');
    network.pod.exec('ip', 'link', 'set', 'net1', 'allmulticast', 'off', 'promisc', 'off');
    network.pod.exec('ip', 'link', 'set', 'net1', 'gso_max_size', '60000');
    network.pod.exec('sh', '-c', 'echo 2 >/proc/sys/net/ipv6/conf/net1/accept_ra');
    network.pod.exec('sh', '-c', 'echo 98 >/proc/sys/net/ipv4/neigh/net1/locktime');
    const missing = [
      '198.51.100.0/24 via 192.0.2.1',
      '2001:DB8:1::/48 via 2001:db8::1 from 2001:DB8:0::10',
      '0.0.0.0/0 via 192.0.2.1 from 192.0.2.10 in table 100',
      '2001:db8:2::/48 via 2001:db8::1 and 2001:DB8::2',
    ];
    expect(await network.differences(config)).toEqual([
      { setting: 'allMulticast', wanted: 'true', found: 'false' },
      { setting: 'promiscuous', wanted: 'true', found: 'false' },
      { setting: 'offloadLimits', wanted: 'gsoMaxBytes=32768', found: 'gsoMaxBytes=60000' },
      { setting: 'routes', wanted: missing.join(', '), found: 'missing' },
      { setting: 'rules', wanted: '102: from 0.0.0.0/0 in table 100', found: 'missing' },
      { setting: 'neighbors', wanted: '192.0.2.77 at 02:00:00:00:00:aa', found: 'missing' },
      {
        setting: 'sysctls',
        wanted: 'net.ipv6.conf.IFNAME.accept_ra=0, net.ipv4.neigh.IFNAME.locktime=33',
        found: 'net.ipv6.conf.IFNAME.accept_ra=2, net.ipv4.neigh.IFNAME.locktime=98',
      },
    ]);
  });

  it('does not compare routes if the routes of the pod have too many next hops', async () => {
    using network = new Network();
    await network.configure(config);
    network.pod.exec('ip', 'route', 'del', '203.0.113.0/24');
    // Each takes more than 1 KiB, of 256 KiB that are read.
    network.addRoutes('net1', 20, 150);
    expect((await network.differences(config))[0]?.wanted).toBe('203.0.113.0/24');
    network.pod.exec('ip', 'route', 'flush', 'to', 'root', '10.0.0.0/8');
    network.addRoutes('net1', 250, 150);
    expect(await network.differences(config)).toEqual([]);
  });

  it('finds a route behind 100,000 others without blocking the event loop', async () => {
    using network = new Network();
    await network.configure(config);
    network.addRoutes('net1', 100_000);
    network.pod.exec('ip', 'route', 'del', '203.0.113.0/24');
    let turns = 0;
    const counting = setInterval(() => turns++);
    expect(await network.differences(config)).toEqual([]);
    clearInterval(counting);
    expect(turns).toBeGreaterThan(20);
    // Those of other interfaces do not count: the kernel leaves them out.
    network.pod.exec('ip', 'link', 'add', 'other', 'type', 'veth', 'peer', 'name', 'other1');
    network.pod.exec('ip', 'route', 'flush', 'dev', 'net1');
    network.pod.exec('ip', 'link', 'set', 'other', 'up');
    network.addRoutes('other', 2_000);
    expect((await network.differences(config))[0]?.wanted).toContain('203.0.113.0/24');
  });
});
