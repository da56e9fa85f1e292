import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { configureLink } from '../../src/driver/vf/configure-link.ts';
import {
  type Link,
  type LinkState,
  moveLink,
  readHostConfig,
  readLinkState,
  restoreLinkState,
  scrubLink,
} from '../../src/node/netlink/index.ts';
import type { TestNetns } from '../doubles/netns.ts';
import { HostAndPod } from './host-and-pod.ts';

/** A host with the NIC `ens5`, one end of a veth pair, and a pod. */
class Setup extends HostAndPod {
  constructor() {
    super();
    this.host.exec('ip', 'link', 'add', 'ens5', 'type', 'veth', 'peer', 'peer5');
    for (const name of ['ens5', 'peer5']) this.host.exec('ip', 'link', 'set', name, 'up');
  }

  async nic(): Promise<Link> {
    const link = await this.hostConnection.link({ name: 'ens5' });
    if (link === undefined) throw new Error('ens5 is not on the host');
    return link;
  }

  async state(): Promise<LinkState> {
    const link = await this.nic();
    return {
      ...(await readLinkState(this.hostConnection, link.index)),
      hostConfig: await readHostConfig(this.hostConnection, link),
    };
  }

  async toPod({ hostConfig }: LinkState): Promise<Link> {
    const target = { netns: this.podHandle, connection: this.podConnection };
    const inPod = await moveLink(this.hostConnection, await this.nic(), target, { name: 'net1' });
    const network = { connection: this.podConnection, writeSysctls: async () => [] };
    for (let round = 0; round < 2; round++) await configureLink(network, inPod, { ...(hostConfig && { hostConfig }) });
    return inPod;
  }

  async back(inPod: Link): Promise<Link> {
    const target = { netns: this.hostHandle, connection: this.hostConnection };
    await scrubLink(this.podConnection, inPod.index);
    return await moveLink(this.podConnection, inPod, target, { name: 'ens5' }, { acceptOtherName: true });
  }
}

/** Addresses as iproute2 shows them, without what the pod changes: lifetimes, and how duplicates were looked for. */
function addressesOf(netns: TestNetns, name: string): string[] {
  const lines = netns.exec('ip', '-o', 'addr', 'show', 'dev', name, 'scope', 'global').trim().split('\n');
  const dropped = /^\d+: \S+\s+|\\.*$| (dynamic|nodad|optimistic|tentative|net1|ens5)\b/g;
  return lines.map((line) => line.replaceAll(dropped, '').trim()).sort();
}

function routesOf(netns: TestNetns, name: string): string[] {
  return ['-4', '-6'].flatMap((family) => {
    const lines = netns.exec('ip', '-o', family, 'route', 'show', 'table', 'all').trim().split('\n');
    return lines
      .filter((line) => line.includes(` dev ${name} `) && !/^(local|broadcast|multicast|anycast|fe80|ff00)/.test(line))
      .map((line) => line.replaceAll(/ (expires \d+sec|linkdown|dev \w+)/g, '').trim())
      .sort();
  });
}

let setup: Setup;
beforeEach(() => {
  setup = new Setup();
});
afterEach(() => setup[Symbol.dispose]());

function neighborsOf(netns: TestNetns, name: string): string[] {
  const lines = netns.exec('ip', 'neigh', 'show', 'nud', 'permanent', 'dev', name).trim().split('\n');
  return lines.map((line) => line.trim()).sort();
}

const seen = (netns: TestNetns, name: string) => [
  addressesOf(netns, name),
  routesOf(netns, name),
  neighborsOf(netns, name),
];

/** What cloud-init, a DHCP client and a router give a NIC. */
function configureHost(): void {
  const ip = (...args: string[]) => void setup.host.exec('ip', ...args);
  ip('addr', 'add', '192.0.2.7/24', 'brd', '192.0.2.255', 'dev', 'ens5', 'metric', '100');
  ip('addr', 'add', '192.0.2.8/24', 'dev', 'ens5', 'valid_lft', '3600', 'preferred_lft', '3600');
  ip('addr', 'add', '10.9.0.1/32', 'dev', 'ens5', 'noprefixroute');
  ip('addr', 'add', '2001:db8::7/64', 'dev', 'ens5', 'nodad', 'valid_lft', '3600', 'preferred_lft', '3600');
  ip('addr', 'add', '2001:db8:5::7/64', 'dev', 'ens5', 'nodad', 'noprefixroute');
  ip('route', 'add', '203.0.113.1/32', 'dev', 'ens5', 'scope', 'link', 'proto', 'dhcp');
  ip(
    'route',
    'add',
    'default',
    'via',
    '203.0.113.1',
    'dev',
    'ens5',
    'proto',
    'dhcp',
    'src',
    '192.0.2.7',
    'metric',
    '9',
  );
  ip('route', 'add', '198.51.100.0/24', 'via', '192.0.2.1', 'dev', 'ens5', 'table', '1001', 'mtu', '1400', 'onlink');
  ip('route', 'add', '203.0.113.64/26', 'nexthop', 'via', '192.0.2.1', 'weight', '3', 'nexthop', 'via', '192.0.2.2');
  ip('-6', 'route', 'add', 'default', 'via', 'fe80::1', 'dev', 'ens5', 'metric', '7', 'expires', '1800', 'proto', 'ra');
  ip('neigh', 'add', '192.0.2.1', 'lladdr', '02:00:00:00:00:09', 'dev', 'ens5');
  ip('neigh', 'add', '2001:db8::1', 'lladdr', '02:00:00:00:00:0a', 'dev', 'ens5');
  ip('-6', 'route', 'add', '2001:db8:9::/48', 'via', '2001:db8::1', 'dev', 'ens5', 'src', '2001:db8::7');
}

describe('a NIC that keeps the configuration of the host', () => {
  it('has its addresses and routes in the pod, and again on the host', async () => {
    configureHost();
    const before = seen(setup.host, 'ens5');
    expect(before.flat()).toHaveLength(5 + 5 + 3 + 2);
    const state = structuredClone(await setup.state());
    const inPod = await setup.toPod(JSON.parse(JSON.stringify(state)));
    expect(seen(setup.pod, 'net1')).toEqual(before);
    expect(setup.pod.exec('ip', 'addr', 'show', 'dev', 'net1')).not.toMatch(/valid_lft \d+sec/);
    const { index } = await setup.back(inPod);
    expect(routesOf(setup.host, 'ens5')).toEqual([]);
    for (let round = 0; round < 2; round++) {
      expect(await restoreLinkState(setup.hostConnection, index, state)).toEqual([]);
      expect(seen(setup.host, 'ens5')).toEqual(before);
    }
  });

  it('is refused if it has more routes than netdra reads', async () => {
    setup.host.exec('ip', 'addr', 'add', '192.0.2.7/24', 'dev', 'ens5');
    const add = 'for i in $(seq 0 255); do echo route add 10.$i.0.0/16 dev ens5; done | ip -batch -';
    setup.host.exec('sh', '-c', add);
    await expect(setup.state()).rejects.toThrow(/on ens5 \(#\d+\): it has 256 or more routes$/);
    setup.host.exec('ip', 'route', 'flush', 'root', '10.0.0.0/9');
    expect((await setup.state()).hostConfig?.routes).toHaveLength(1 + 128);
  });

  it('is refused if one of its routes also leads through another interface', async () => {
    const ip = (...args: string[]) => void setup.host.exec('ip', ...args);
    ip('addr', 'add', '192.0.2.7/24', 'dev', 'ens5');
    ip('link', 'add', 'ens6', 'type', 'veth', 'peer', 'peer6');
    ip('link', 'set', 'ens6', 'up');
    ip('addr', 'add', '198.51.100.7/24', 'dev', 'ens6');
    ip('route', 'add', '203.0.113.0/24', 'nexthop', 'via', '192.0.2.1', 'nexthop', 'via', '198.51.100.1');
    await expect(setup.state()).rejects.toThrow(
      /its route to 203\.0\.113\.0\/24 in table 254 leaves by another interface, too$/,
    );
  });

  it.each([
    ['has no carrier, so that its IPv6 address stays tentative', 'down'],
    ['checks its IPv6 address for duplicates', 'up'],
  ] as const)('keeps its addresses if it %s', async (_what, peer) => {
    setup.host.exec('ip', 'link', 'set', 'peer5', peer);
    setup.host.exec('ip', 'addr', 'add', '192.0.2.7/24', 'dev', 'ens5');
    setup.host.exec('ip', 'addr', 'add', '2001:db8::7/64', 'dev', 'ens5');
    expect(setup.host.exec('ip', 'addr', 'show', 'dev', 'ens5', 'tentative')).toContain('2001:db8::7/64');
    const [before, state] = [addressesOf(setup.host, 'ens5'), await setup.state()];
    expect(await restoreLinkState(setup.hostConnection, (await setup.nic()).index, state)).toEqual([]);
    expect(addressesOf(setup.host, 'ens5')).toEqual(before);
    const inPod = await setup.toPod(state);
    expect(addressesOf(setup.pod, 'net1')).toEqual(before);
    const { index } = await setup.back(inPod);
    expect(await restoreLinkState(setup.hostConnection, index, state)).toEqual([]);
    expect(addressesOf(setup.host, 'ens5')).toEqual(before);
  });

  it('keeps the link scope and the labels of its IPv4 addresses', async () => {
    setup.host.exec('ip', 'addr', 'add', '169.254.7.1/16', 'dev', 'ens5', 'scope', 'link');
    setup.host.exec('ip', 'addr', 'add', '192.0.2.7/24', 'dev', 'ens5', 'label', 'ens5:vip');
    const shown = () => setup.host.exec('ip', '-4', '-o', 'addr', 'show', 'dev', 'ens5');
    const [before, state] = [shown(), await setup.state()];
    expect(before).toContain('scope link ens5');
    const { index } = await setup.back(await setup.toPod(state));
    expect(await restoreLinkState(setup.hostConnection, index, state)).toEqual([]);
    expect(shown().replaceAll(/^\d+: /gm, '')).toBe(before.replaceAll(/^\d+: /gm, ''));
  });

  it('is restored at the end of its claim even if the pod never started', async () => {
    configureHost();
    const [before, state] = [seen(setup.host, 'ens5'), await setup.state()];
    expect(await restoreLinkState(setup.hostConnection, (await setup.nic()).index, state)).toEqual([]);
    expect(seen(setup.host, 'ens5')).toEqual(before);
  });

  it('gets its remaining routes and neighbors back even if another NIC has taken one of its routes', async () => {
    configureHost();
    const [[, routes = [], neighbors = []], state] = [seen(setup.host, 'ens5'), await setup.state()];
    const { index } = await setup.back(await setup.toPod(state));
    const taken = 'default via 203.0.113.1 proto dhcp src 192.0.2.7 metric 9';
    setup.host.exec('ip', 'link', 'add', 'ens6', 'type', 'veth', 'peer', 'peer6');
    setup.host.exec('ip', 'link', 'set', 'ens6', 'up');
    setup.host.exec('ip', 'route', 'add', 'default', 'dev', 'ens6', 'metric', '9');
    expect(await restoreLinkState(setup.hostConnection, index, state)).toMatchObject([
      {
        property: 'hostConfig',
        error: { errno: 'EEXIST', message: expect.stringContaining('0.0.0.0/0 in table 254') },
      },
    ]);
    expect(routesOf(setup.host, 'ens5')).toEqual(routes.filter((route) => route !== taken));
    expect(neighborsOf(setup.host, 'ens5')).toEqual(neighbors);
  });

  it('is accepted with any number of neighbors that the kernel has learnt by itself', async () => {
    configureHost();
    const add =
      'for i in $(seq 20 250); do echo neigh add 192.0.2.$i lladdr 02:00:00:00:01:01 nud stale dev ens5; echo neigh add 10.9.0.$i lladdr 02:00:00:00:01:02 nud stale dev ens5; done | ip -batch -';
    setup.host.exec('sh', '-c', add);
    expect(setup.host.exec('ip', 'neigh', 'show', 'dev', 'ens5').split('\n').length).toBeGreaterThan(256);
    expect((await setup.state()).hostConfig?.neighbors).toHaveLength(2);
  });

  it.each([
    [
      'two routes that differ in their type of service',
      ['10.8.0.0/16 via 192.0.2.1', '10.8.0.0/16 via 192.0.2.2 tos 0x10'],
      'it has two routes to 10.8.0.0/16 in table 254 with the same metric',
    ],
    [
      'a route with the source address of another interface',
      ['10.8.0.0/16 via 192.0.2.1 src 198.51.100.9'],
      'the source address of its route to 10.8.0.0/16',
    ],
  ])('is refused with %s', async (_what, routes, message) => {
    const ip = (text: string) => void setup.host.exec('ip', ...text.split(' '));
    ip('link set lo up');
    ip('addr add 198.51.100.9/32 dev lo');
    ip('addr add 192.0.2.7/24 dev ens5');
    for (const route of routes) ip(`route add ${route}`);
    await expect(setup.state()).rejects.toThrow(message);
  });

  it('is rejected for a pod whose eth0 has the same route', async () => {
    configureHost();
    const state = await setup.state();
    setup.pod.exec('ip', 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'peer0');
    setup.pod.exec('ip', 'link', 'set', 'eth0', 'up');
    setup.pod.exec('ip', 'route', 'add', 'default', 'dev', 'eth0', 'metric', '9');
    await expect(setup.toPod(state)).rejects.toMatchObject({
      errno: 'EEXIST',
      message: expect.stringContaining('set routes (0.0.0.0/0 in table 254) of link'),
      hint: expect.stringContaining('another interface already has this route'),
    });
  });
});
