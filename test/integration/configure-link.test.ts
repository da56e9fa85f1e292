import { describe, expect, it } from 'vitest';
import type { RouteConfig } from '../../src/driver/model/index.ts';
import { CniAttacher } from '../../src/driver/vf/cni-attacher.ts';
import { configureLink, toNewRoute } from '../../src/driver/vf/configure-link.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { decodeCniResult, parseCniResult } from '../../src/node/cni/result.ts';
import { RtnlConnection, ruleTable } from '../../src/node/netlink/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';
import { storedDevice } from '../doubles/stored-claims.ts';

/** A namespace with two interfaces, of which the first has the default route. */
async function podWithTwoLinks() {
  const stack = new DisposableStack();
  const own = stack.use(new TestNetns());
  const netns = stack.use(own.open());
  const pod = stack.use(RtnlConnection.open(netns));
  for (const name of ['eth0', 'net1']) await pod.createVeth({ name, peer: { name: `${name}p` } });
  for (const name of ['eth0p', 'net1p', 'eth0']) own.exec('ip', 'link', 'set', name, 'up');
  own.exec('ip', 'addr', 'add', '10.0.0.2/24', 'dev', 'eth0');
  own.exec('ip', 'route', 'add', 'default', 'via', '10.0.0.1');
  const link = await pod.link({ name: 'net1' });
  if (link === undefined) throw new Error('net1 was not made');
  const network = { connection: pod, writeSysctls: async () => [] };
  return { own, network, link, [Symbol.dispose]: () => stack.dispose() };
}

describe('configureLink', () => {
  it('is idempotent', async () => {
    using bench = await podWithTwoLinks();
    const config = {
      mtu: 1400,
      macAddress: '02:AA:00:00:00:01',
      allMulticast: true,
      promiscuous: true,
      addresses: ['192.0.2.2/24', '2001:db8::2/64'],
      routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }, { destination: '2001:DB8:1::/48' }],
    };
    for (let round = 0; round < 2; round++) await configureLink(bench.network, bench.link, config);
    const [net1] = bench.own.ip('addr', 'show', 'dev', 'net1');
    expect(net1).toMatchObject({ mtu: 1400, address: '02:aa:00:00:00:01' });
    expect(net1.flags).toEqual(expect.arrayContaining(['ALLMULTI', 'PROMISC']));
    expect(bench.own.exec('ip', 'route', 'show', 'dev', 'net1')).toContain('198.51.100.0/24 via 192.0.2.1');
    expect(bench.own.exec('ip', '-6', 'route', 'show', 'dev', 'net1')).toContain('2001:db8:1::/48');
  });

  it('adds the route to a gateway before routes through the gateway, whatever the order in the claim', async () => {
    using bench = await podWithTwoLinks();
    const routes = [
      { destination: '198.51.100.0/24', gateway: '203.0.113.1' },
      { destination: '203.0.113.1/32' },
      { destination: '2001:db8:2::/48', gateway: '2001:db8:1::1' },
      { destination: '2001:db8:1::1/128' },
    ];
    await configureLink(bench.network, bench.link, { addresses: ['192.0.2.2/32', '2001:db8::2/128'], routes });
    expect(bench.own.exec('ip', 'route', 'show', 'dev', 'net1')).toContain('198.51.100.0/24 via 203.0.113.1');
    expect(bench.own.exec('ip', '-6', 'route', 'show', 'dev', 'net1')).toContain('2001:db8:2::/48 via 2001:db8:1::1');
  });

  it('adds routes with every field that a claim can give them', async () => {
    using bench = await podWithTwoLinks();
    const routes: RouteConfig[] = [
      { destination: '0.0.0.0/0', gateway: '192.0.2.1', table: 100 },
      { destination: '0.0.0.0/0', gateway: '192.0.2.9', metric: 200, source: '192.0.2.3' },
      { destination: '198.51.100.0/24', gateway: '203.0.113.1', onlink: true },
      { destination: '203.0.113.0/28', scope: 'global' },
      { destination: '203.0.113.64/26', nextHops: [{ gateway: '192.0.2.1', weight: 3 }, { gateway: '192.0.2.2' }] },
      { destination: '2001:db8:1::/48', gateway: '2001:db8:9::1', onlink: true, table: 1000, metric: 7 },
      {
        destination: '2001:db8:3::/48',
        nextHops: [{ gateway: '2001:db8::1' }, { gateway: '2001:db8::9', weight: 256 }],
      },
    ];
    const addresses = ['192.0.2.2/24', '192.0.2.3/24', '2001:db8::2/64'];
    const config = { addresses, routes: routes.map(toNewRoute) };
    for (let round = 0; round < 2; round++) await configureLink(bench.network, bench.link, config);
    const shown = [['route'], ['-6', 'route']].flatMap((args) => bench.own.ip(...args, 'show', 'table', 'all'));
    const hops = (...list: [string, number][]) =>
      list.map(([gateway, weight]) => expect.objectContaining({ gateway, weight, dev: 'net1' }));
    const expected = [
      { dst: 'default', gateway: '192.0.2.1', table: '100' },
      { dst: 'default', gateway: '192.0.2.9', metric: 200, prefsrc: '192.0.2.3' },
      { dst: '198.51.100.0/24', gateway: '203.0.113.1', flags: expect.arrayContaining(['onlink']) },
      { dst: '203.0.113.0/28', scope: 'global' },
      { dst: '203.0.113.64/26', nexthops: hops(['192.0.2.1', 3], ['192.0.2.2', 1]) },
      { dst: '2001:db8:1::/48', gateway: '2001:db8:9::1', table: '1000', metric: 7 },
      { dst: '2001:db8:3::/48', nexthops: hops(['2001:db8::1', 1], ['2001:db8::9', 256]) },
    ];
    expect(shown).toEqual(expect.arrayContaining(expected.map((route) => expect.objectContaining(route))));
  });

  it.each([
    ['an MTU below 1280', ['ip', 'link', 'set', 'net1', 'mtu', '1200']],
    ['disable_ipv6', ['sh', '-c', 'echo 1 >/proc/sys/net/ipv6/conf/net1/disable_ipv6']],
  ])('reports that IPv6 is off for an interface with %s', async (_what, [command = '', ...args]) => {
    using bench = await podWithTwoLinks();
    bench.own.exec(command, ...args);
    await expect(configureLink(bench.network, bench.link, { addresses: ['2001:db8::2/64'] })).rejects.toMatchObject({
      message: expect.stringContaining('cannot add address 2001:db8::2/64'),
      hint: expect.stringContaining('IPv6 is off for the interface'),
    });
  });

  it('reports that another interface already has the route', async () => {
    using bench = await podWithTwoLinks();
    const config = { addresses: ['192.0.2.2/24'], routes: [{ destination: '0.0.0.0/0', gateway: '192.0.2.1' }] };
    await expect(configureLink(bench.network, bench.link, config)).rejects.toEqual(
      expect.objectContaining({
        message: expect.stringMatching(/add route to 0\.0\.0\.0\/0 via 192\.0\.2\.1.*EEXIST/),
        hint: expect.stringContaining('give it another metric or table'),
      }),
    );
  });

  it('names offloadLimits, not the MTU, as the cause if the interface rejects offload limits', async () => {
    using bench = await podWithTwoLinks();
    // Unlike a veth end, it takes no larger packets than 64 KiB.
    bench.own.exec('ip', 'link', 'add', 'br0', 'type', 'bridge');
    const link = await bench.network.connection.link({ name: 'br0' });
    const config = { mtu: 1400, offloadLimits: { gsoMaxBytes: 131_072 } };
    await expect(configureLink(bench.network, link ?? bench.link, config)).rejects.toMatchObject({
      message: expect.stringContaining('change (offloadLimits) link'),
      hint: expect.stringContaining('tso_max_size'),
    });
    expect(bench.own.ip('link', 'show', 'dev', 'br0')[0]).toMatchObject({ mtu: 1400 });
  });

  it('explains that neighbors need an Ethernet interface only if the kernel rejects a neighbor, not a rule', async () => {
    using bench = await podWithTwoLinks();
    const { connection } = bench.network;
    bench.own.exec('ip', 'link', 'set', 'net1', 'mtu', '1200');
    const neighbors = [{ address: '2001:db8::9', macAddress: '02:00:00:00:00:09' }];
    await expect(configureLink(bench.network, bench.link, { neighbors })).rejects.toMatchObject({
      errno: 'EINVAL',
      hint: expect.stringContaining('neighbors need an Ethernet interface'),
    });
    const rule = { priority: 100, source: '2001:db8::/64', table: 0 };
    await expect(connection.addEntry(ruleTable, bench.link.index, rule)).rejects.toMatchObject({
      errno: 'EINVAL',
      hint: expect.not.stringContaining('neighbors'),
    });
  });

  it('applies every route field of an IPAM plugin, and logs the parts of the result that it ignores', async () => {
    using bench = await podWithTwoLinks();
    const logger = new RecordingLogger();
    const given = await ipamResult(logger, {
      ips: [{ address: '192.0.2.2/24', gateway: '192.0.2.1' }, { address: '2001:db8::2/64' }],
      routes: [
        { dst: '0.0.0.0/0', priority: 200, mtu: 1300, advmss: 1200 },
        { dst: '0.0.0.0/0', gw: '192.0.2.9', table: 1000 },
        { dst: '198.51.100.0/24', scope: 253, table: 100 },
        { dst: '2001:db8:1::/48', gw: '2001:db8::1', priority: 7 },
        { dst: '2001:db8:2::/48', gw: '2001:db8::1' },
      ],
      dns: { nameservers: ['192.0.2.53'] },
      interfaces: [],
    });
    for (let round = 0; round < 2; round++) await configureLink(bench.network, bench.link, given);
    const ofIp = [['route'], ['-6', 'route']].flatMap((args) =>
      bench.own.ip(...args, 'show', 'table', 'all', 'dev', 'net1'),
    );
    expect(ofIp).toEqual(
      expect.arrayContaining(
        [
          {
            dst: 'default',
            gateway: '192.0.2.1',
            scope: 'global',
            metric: 200,
            metrics: [{ mtu: 1300, advmss: 1200 }],
          },
          { dst: 'default', gateway: '192.0.2.9', table: '1000' },
          { dst: '198.51.100.0/24', table: '100', scope: 'link' },
          { dst: '2001:db8:1::/48', gateway: '2001:db8::1', metric: 7 },
          { dst: '2001:db8:2::/48', gateway: '2001:db8::1', metric: 1024 },
        ].map((route) => expect.objectContaining(route)),
      ),
    );
    expect(logger.lines).toMatchObject([{ level: 'warn', fields: { device: 'dev-0', fields: ['dns'] } }]);
  });
});

/** What the attacher makes of a result that the plugin prints. */
async function ipamResult(logger: RecordingLogger, printed: object) {
  const subject = { plugin: 'static', network: 'netdra', cniVersion: '1.0.0' as const };
  const result = decodeCniResult(parseCniResult(JSON.stringify(printed), subject), subject);
  const runner = { ipamAdd: async () => result } as never;
  const device = storedDevice({
    name: 'dev-0',
    pciAddress: '0000:01:10.0',
    request: 'r',
    config: { ipam: { type: 'static' } },
  });
  const place = { podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n', podUid: 'u' };
  return await new CniAttacher({ runner, clock: systemClock, logger }).addresses(
    device,
    place,
    new AbortController().signal,
  );
}
