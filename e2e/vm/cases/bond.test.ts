import { describe, expect, test } from 'vitest';
import { joinBond } from '../../../src/driver/vf/bonds.ts';
import { configureLink } from '../../../src/driver/vf/configure-link.ts';
import { linkToCreate } from '../../../src/driver/vf/created-links.ts';
import { KernelNetworks, type NewBond, RtnlConnection, toNetworkState } from '../../../src/node/netlink/index.ts';
import { TestNetns } from '../../../test/doubles/netns.ts';
import { advertise } from '../../../test/doubles/router.ts';
import { activeIn, type Failover, failOver, setCable } from '../failover.ts';
import { detailedLinks, linkOf, networkDataOf, vfAt } from '../vfs.ts';
import { deviceName } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Far more than it takes, since processors are emulated. */
const waitMs = 60_000;

it('a bond over two cards fails over when one cable is pulled, and does not fail back afterwards', async ({
  node,
  vfs,
}) => {
  let shown: Failover;
  try {
    shown = await failOver(node, vfs, (_what, task) => task(), { mtu: 1400 });
    await node.killDriver();
  } finally {
    await setCable('pf0', true);
  }
  const { bonded, before, after, interruptionMs, tainted, next } = shown;
  expect(after.generation).toBeGreaterThan(before.generation);
  // Answers came from then on, and the driver of a VF looks at its link every two seconds.
  expect(interruptionMs).toBeLessThan(30_000);
  expect(tainted).toEqual(vfs.filter(({ pf }) => pf === 'pf0').map(deviceName));
  expect(next.pf).toBe('pf1');

  const { netnsPath } = bonded.sandbox;
  const bond = detailedLinks(netnsPath).find(({ ifname }) => ifname === 'bond0');
  expect(bond).toMatchObject({ mtu: 1400, flags: expect.arrayContaining(['MASTER', 'UP', 'LOWER_UP']) });
  expect(after.devices.map(({ networkData }) => networkData)).toEqual([networkDataOf(bond!), networkDataOf(bond!)]);
  for (const [index, pf] of ['pf0', 'pf1'].entries()) {
    const { ifname, address } = linkOf(vfAt(vfs, pf, 4), netnsPath)!;
    expect(after.devices[index]?.attributes).toMatchObject({
      bondMember: { string: ifname },
      mac: { string: address },
    });
  }
  // A bond does not return to its first member by itself: that would be another interruption.
  await node.startDriver();
  expect(activeIn(await node.metadataOnHost(bonded))).toEqual([false, true]);
});

it.for([
  [
    { mode: 'balance-xor', miimonMs: 50, xmitHashPolicy: 'layer3+4' },
    { miimon: 50, xmit_hash_policy: 'layer3+4' },
  ],
  [
    { mode: '802.3ad', miimonMs: 100, xmitHashPolicy: 'encap2+3', lacpRate: 'fast', adSelect: 'count' },
    { xmit_hash_policy: 'encap2+3', ad_lacp_rate: 'fast', ad_select: 'count' },
  ],
  [
    { mode: 'active-backup', arpIntervalMs: 500, arpTargets: ['192.0.2.1', '192.0.2.2'], failOverMac: 'active' },
    { miimon: 0, arp_interval: 500, arp_ip_target: ['192.0.2.1', '192.0.2.2'], fail_over_mac: 'active' },
  ],
  [{ mode: 'balance-tlb', miimonMs: 100, xmitHashPolicy: 'vlan+srcmac' }, { xmit_hash_policy: 'vlan+srcmac' }],
  [
    { mode: 'balance-alb', miimonMs: 100, primaryReselect: 'better' },
    { miimon: 100, primary_reselect: 'better' },
  ],
] as const)('RtnlConnection.createBond sets each option that iproute2 shows: %j', async ([options, shown]) => {
  using own = new TestNetns();
  using netns = own.open();
  using connection = RtnlConnection.open(netns);
  await connection.createBond({ name: 'bond0', ...options } as NewBond);
  const [{ linkinfo }] = own.ip('-d', 'link', 'show', 'dev', 'bond0');
  expect(linkinfo.info_data).toMatchObject({ mode: options.mode, ...shown });
});

it.each([
  ['again', 'always', 'net2'],
  ['no longer', 'failure', 'net1'],
] as const)(
  'joinBond makes the bond use its primary member, %s after a cable failure if primaryReselect is %s',
  async (_, primaryReselect, after) => {
    using own = new TestNetns();
    for (const name of ['net1', 'net2'])
      own.exec('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', `${name}-peer`);
    using netns = own.open();
    using connection = RtnlConnection.open(netns);
    const created = linkToCreate('bond', 'claim-uid', 'bond0');
    const config = { bond: { name: 'bond0', primary: 'right', primaryReselect } };
    const join = async (request: string, name: string) => {
      const link = await connection.link({ name });
      await joinBond(connection, link!, created, { config, request });
    };
    for (const [request, name] of Object.entries({ left: 'net1', right: 'net2' })) {
      own.exec('ip', 'link', 'set', `${name}-peer`, 'up');
      await join(request, name);
    }
    own.exec('ip', 'link', 'set', 'bond0', 'up');
    const shown = () => own.ip('link', 'show', 'dev', 'bond0')[0].linkinfo.info_data;
    await expect.poll(shown, { timeout: waitMs }).toMatchObject({ primary: 'net2', active_slave: 'net2' });
    own.exec('ip', 'link', 'set', 'net2-peer', 'down');
    await expect.poll(shown, { timeout: waitMs }).toMatchObject({ primary: 'net2', active_slave: 'net1' });
    own.exec('ip', 'link', 'set', 'net2-peer', 'up');
    const isUp = () => own.ip('link', 'show', 'dev', 'net2')[0].linkinfo.info_slave_data.mii_status;
    await expect.poll(isUp, { timeout: waitMs }).toBe('UP');
    // As after a restart of the driver.
    await join('right', 'net2');
    await expect.poll(shown, { timeout: waitMs }).toMatchObject({ primary: 'net2', active_slave: after });
  },
);

describe('configureLink on a bond with slaac', () => {
  // Without the driver, which `it` starts.
  test('gives the bond an address from a router, which it keeps after a failover', async () => {
    using own = new TestNetns();
    for (const name of ['net1', 'net2']) {
      own.exec('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', `${name}-peer`);
      own.exec('ip', 'link', 'set', `${name}-peer`, 'up');
    }
    using networks = new KernelNetworks({ procSysDir: '/proc/sys' });
    using namespace = networks.open(own.path)!;
    const { connection, netns } = namespace;
    const config = { bond: { name: 'bond0' }, slaac: { waitSeconds: 0 } };
    for (const name of ['net1', 'net2']) {
      const link = await connection.link({ name });
      const bond = await joinBond(connection, link!, linkToCreate('bond', 'claim-uid', 'bond0'), {
        config,
        request: name,
      });
      await configureLink(namespace, bond, config);
    }
    const announced = async (peer: string) => {
      const link = await connection.link({ name: peer });
      advertise(netns, link!, ['2001:db8:1::/64']);
      const bond = await connection.link({ name: 'bond0' });
      const { isAutoconfigured, ips } = toNetworkState(bond!, await connection.addresses(bond!.index));
      return isAutoconfigured ? ips : [];
    };
    await expect.poll(() => announced('net1-peer'), { timeout: waitMs }).toHaveLength(1);
    const [first] = await announced('net1-peer');
    own.exec('ip', 'link', 'set', 'net1-peer', 'down');
    // The bond has another MAC now, of which the kernel makes another address.
    await expect.poll(() => announced('net2-peer'), { timeout: waitMs }).toHaveLength(2);
    expect(await announced('net2-peer')).toContain(first);
  });
});
