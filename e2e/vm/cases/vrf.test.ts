import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { SandboxPlace, VfConfig } from '../../../src/driver/model/index.ts';
import { joinBond } from '../../../src/driver/vf/bonds.ts';
import { findDifferences } from '../../../src/driver/vf/claim-differences.ts';
import { configureLink, toNewRoute } from '../../../src/driver/vf/configure-link.ts';
import { linkToCreate } from '../../../src/driver/vf/created-links.ts';
import { joinVrf } from '../../../src/driver/vf/vrfs.ts';
import { KernelNetworks, type Link } from '../../../src/node/netlink/index.ts';
import { TestNetns } from '../../../test/doubles/netns.ts';
import { advertise } from '../../../test/doubles/router.ts';
import { storedDevice } from '../../../test/doubles/stored-claims.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { detailedLinks, linkOf, vfAt } from '../vfs.ts';
import { readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

const vrf = { name: 'red', table: 10 };
const addresses = ['192.0.2.7/24', '2001:db8::7/64'];
const routes = [
  { destination: '0.0.0.0/0', gateway: '192.0.2.1', table: 10 },
  { destination: '2001:db8:1::/48', gateway: '2001:db8::1', table: 10 },
];
/** Far more than it takes, since processors are emulated. */
const waitMs = 60_000;

const task = {
  device: storedDevice(),
  place: { podUid: 'u', podNamespace: 'default', podName: 'app', sandboxId: 's', netnsPath: '/n' } as SandboxPlace,
};
let own: TestNetns;
let networks: KernelNetworks;
let namespace: NonNullable<ReturnType<KernelNetworks['open']>>;

const linkNamed = async (name: string) => (await namespace.connection.link({ name }))!;
const destinations = (...args: string[]) => own.ip(...args).map(({ dst }: { dst: string }) => dst);

/** Configures a link as the driver does. */
async function attach(link: Link, config: VfConfig): Promise<void> {
  await joinVrf(task, namespace, link, { ...config, vrf: config.vrf ?? vrf });
  await configureLink(namespace, link, { ...config, routes: (config.routes ?? []).map(toNewRoute) });
}

function startNamespace(): void {
  own = new TestNetns();
  for (const name of ['net1', 'net2']) {
    own.exec('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', `${name}-peer`);
    own.exec('ip', 'link', 'set', `${name}-peer`, 'up');
  }
  networks = new KernelNetworks({ procSysDir: '/proc/sys' });
  namespace = networks.open(own.path)!;
}

function endNamespace(): void {
  for (const each of [namespace, networks, own]) each[Symbol.dispose]();
}

describe('joinVrf', () => {
  beforeEach(startNamespace);
  afterEach(endNamespace);

  test('adds two interfaces with addresses and routes to one VRF, and can be repeated', async () => {
    const config = { vrf, addresses, routes };
    await attach(await linkNamed('net1'), config);
    // As after a restart of the driver.
    await attach(await linkNamed('net1'), config);
    await attach(await linkNamed('net2'), { vrf, addresses: ['198.51.100.7/24'] });
    const members = own.ip('link', 'show', 'master', 'red').map(({ ifname }: { ifname: string }) => ifname);
    expect(members.sort()).toEqual(['net1', 'net2']);
    expect(own.ip('link', 'show', 'type', 'vrf')).toMatchObject([
      { ifname: 'red', ifalias: 'netdra:vrf:u/red', flags: expect.arrayContaining(['UP']) },
    ]);
    const ipv4 = destinations('-4', 'route', 'show', 'table', '10', 'type', 'unicast');
    expect(ipv4.sort()).toEqual(['192.0.2.0/24', '198.51.100.0/24', 'default']);
    const ipv6 = destinations('-6', 'route', 'show', 'table', '10');
    expect(ipv6).toEqual(expect.arrayContaining(['2001:db8:1::/48', '2001:db8::/64', 'default']));
    expect(destinations('-4', 'route', 'show', 'table', 'main')).toEqual([]);
    for (const family of ['-4', '-6'])
      expect(own.ip(family, 'route', 'show', 'table', '10', 'type', 'unreachable')).toMatchObject([{ dst: 'default' }]);
    expect(await findDifferences(namespace, 'net1', config)).toEqual([]);
    own.exec('ip', 'link', 'set', 'net1', 'nomaster');
    expect(await findDifferences(namespace, 'net1', config)).toContainEqual({
      setting: 'vrf',
      wanted: 'red with table 10',
      found: 'none',
    });
  });

  test('keeps traffic of the VRF out of the main table of the pod', async () => {
    own.exec('ip', 'link', 'set', 'net2', 'up');
    own.exec('ip', 'addr', 'add', '203.0.113.7/24', 'dev', 'net2');
    own.exec('ip', 'route', 'add', 'default', 'via', '203.0.113.1');
    await attach(await linkNamed('net1'), { vrf, addresses });
    expect(own.ip('route', 'get', '198.51.100.1')).toMatchObject([{ dev: 'net2' }]);
    expect(() => own.ip('route', 'get', '198.51.100.1', 'vrf', 'red')).toThrow(/route get/);
    expect(own.ip('route', 'get', '192.0.2.9', 'vrf', 'red')).toMatchObject([{ dev: 'net1' }]);
  });
});

describe('joinVrf and other settings', () => {
  beforeEach(startNamespace);
  afterEach(endNamespace);

  test('makes a bond a member of the VRF', async () => {
    const config = { bond: { name: 'bond0' }, vrf, addresses, routes };
    for (const name of ['net1', 'net2']) {
      const created = linkToCreate('bond', 'claim-uid', 'bond0');
      const member = { config, request: name };
      const bond = await joinBond(namespace.connection, await linkNamed(name), created, member);
      await attach(bond, config);
    }
    const masters = own.ip('link', 'show').flatMap(({ ifname, master }: { ifname: string; master?: string }) => {
      return master === undefined ? [] : [[ifname, master]];
    });
    expect(Object.fromEntries(masters)).toEqual({ net1: 'bond0', net2: 'bond0', bond0: 'red' });
    const shown = own.ip('addr', 'show', 'dev', 'bond0')[0].addr_info.map(({ local }: { local: string }) => local);
    expect(shown).toEqual(expect.arrayContaining(['192.0.2.7', '2001:db8::7']));
  });

  test('puts routes that a router advertises into the VRF', async () => {
    await attach(await linkNamed('net1'), { vrf, slaac: { waitSeconds: 0, defaultRoute: true } });
    const peer = await linkNamed('net1-peer');
    const routesBy = () => {
      advertise(namespace.netns, peer, ['2001:db8:2::/64']);
      return destinations('-6', 'route', 'show', 'table', '10', 'proto', 'ra');
    };
    await expect.poll(routesBy, { timeout: waitMs }).toContain('default');
    expect(destinations('-6', 'route', 'show', 'table', '10', 'dev', 'net1')).toContain('2001:db8:2::/64');
  });

  test.each([
    ['a link of the pod', ['red', 'type', 'dummy'], /: the pod has a link of that name that netdra has not made$/],
    [
      'a VRF of the pod',
      ['red', 'type', 'vrf', 'table', '10'],
      /: the pod has a link of that name that netdra has not/,
    ],
  ])('does not change %s with the name of the VRF', async (_, link, message) => {
    own.exec('ip', 'link', 'add', ...link);
    await expect(attach(await linkNamed('net1'), { vrf })).rejects.toMatchObject({
      code: 'vrf-refused',
      message: expect.stringMatching(message),
    });
  });
});

it('a pod reaches the network of its VF through the VRF of its claim', async ({ node, vfs }) => {
  const [vf, peer] = [vfAt(vfs, 'pf0', 1), vfAt(vfs, 'pf0', 2)];
  const remote = await node.startPod('remote', peer, [
    vfConfig({ interfaceName: 'net1', addresses: ['192.0.2.1/24', '2001:db8::1/64'] }),
  ]);
  const claimed = routes.map(({ table: _table, ...route }) => route);
  // A default route needs a class.
  const running = await node.startPod('vrf', vf, [
    classConfig({ vrf, routes: claimed }),
    vfConfig({ interfaceName: 'net1', addresses }),
  ]);
  const { netnsPath } = running.sandbox;
  expect(linkOf(vf, netnsPath)).toMatchObject({ ifname: 'net1', master: 'red' });
  expect(detailedLinks(netnsPath).find(({ ifname }) => ifname === 'red')?.flags).toContain('UP');
  const [device] = (await readMetadata(running)).devices;
  expect(device?.networkData?.ips).toEqual(['192.0.2.7/24', '2001:db8::7/64']);
  for (const pod of [remote, running]) {
    const isUp = async () => (await node.metadataOnHost(pod)).devices[0]?.attributes?.linkUp;
    await expect.poll(isUp, { timeout: 90_000 }).toEqual({ bool: true });
  }
  const ping = (address: string) => `ping -I red -c 2 -i 0.3 -W 5 -w 20 ${address} || true`;
  const { stdout } = await running.container.exec('sh', '-c', ['192.0.2.1', '2001:db8::1'].map(ping).join('\n'));
  for (const address of ['192.0.2.1', '2001:db8::1'])
    expect(stdout).toContain(`--- ${address} ping statistics ---\n2 packets transmitted, 2 packets received`);
});
