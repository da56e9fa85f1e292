import { spawn } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { applyEthtool, findOtherEthtool } from '../../src/driver/vf/ethtool-settings.ts';
import {
  EthtoolConnection,
  type Link,
  type LinkState,
  moveLink,
  readLinkState,
  restoreLinkState,
  scrubLink,
} from '../../src/node/netlink/index.ts';
import { EthtoolIoctl } from '../doubles/ethtool-ioctl.ts';
import { isMachineRoot } from '../doubles/machine-root.ts';
import type { TestNetns } from '../doubles/netns.ts';
import { attachXdp } from '../doubles/xdp.ts';
import { HostAndPod } from './host-and-pod.ts';

/** A host with the veth end `ens1f0v0` as VF, and a pod. */
class Setup extends HostAndPod {
  readonly hostEthtool = this.stack.use(EthtoolConnection.open(this.hostHandle));
  readonly podEthtool = this.stack.use(EthtoolConnection.open(this.podHandle));
  readonly hostIoctl = this.stack.use(new EthtoolIoctl(this.hostHandle));
  readonly podIoctl = this.stack.use(new EthtoolIoctl(this.podHandle));

  constructor() {
    super();
    // Several queues, so that their number can be changed.
    const [vf, peer] = [queues('ens1f0v0'), queues('peer0')];
    this.host.exec('ip', 'link', 'add', ...vf, 'address', '02:00:00:00:00:01', 'type', 'veth', 'peer', ...peer);
  }

  async vf(): Promise<Link> {
    const link = await this.hostConnection.link({ name: 'ens1f0v0' });
    if (link === undefined) throw new Error('ens1f0v0 is not on the host');
    return link;
  }

  async toPod(name = 'net1'): Promise<{ before: LinkState; inPod: Link }> {
    const link = await this.vf();
    const before = await readLinkState(this.hostConnection, link.index, this.hostEthtool);
    const target = { netns: this.podHandle, connection: this.podConnection };
    return { before, inPod: await moveLink(this.hostConnection, link, target, { name, up: true }) };
  }

  /** As the driver does, by what the link is now: the pod may have changed its MAC address. */
  async back({ index }: Link, name = 'ens1f0v0'): Promise<Link> {
    const link = await this.podConnection.link({ index });
    if (link === undefined) throw new Error(`no link of the pod has the index ${index}`);
    const target = { netns: this.hostHandle, connection: this.hostConnection };
    return await moveLink(this.podConnection, link, target, { name }, { acceptOtherName: true });
  }

  async restore(index: number, before: LinkState) {
    return await restoreLinkState(this.hostConnection, index, before, this.hostEthtool);
  }

  async state(index: number): Promise<LinkState> {
    return await readLinkState(this.hostConnection, index, this.hostEthtool);
  }
}

const queues = (name: string) => ['name', name, 'numrxqueues', '4', 'numtxqueues', '4'];

let setup: Setup;
beforeEach(() => {
  setup = new Setup();
});
afterEach(() => setup[Symbol.dispose]());

/** What iproute2 sees of a link, without what changes by itself. */
function shown(netns: TestNetns, name: string): object {
  const [link] = netns.ip('link', 'show', 'dev', name);
  const { ifindex: _index, operstate: _state, flags, ...rest } = link;
  const carrierFlags = ['NO-CARRIER', 'LOWER_UP', 'M-DOWN'];
  return { ...rest, flags: flags.filter((flag: string) => !carrierFlags.includes(flag)) };
}

const switches = ['txChecksum', 'tcpSegmentation', 'genericReceiveOffload'] as const;

/** All that iproute2 and ethtool can change of a veth end. */
async function changeEverything({ pod, podEthtool, podIoctl }: Setup, index: number): Promise<void> {
  const set = (...change: string[]) => pod.exec('ip', 'link', 'set', 'dev', 'net1', ...change);
  for (const name of ['br-ex', 'a'.repeat(127), 'peer0']) {
    pod.exec('ip', 'link', 'property', 'add', 'dev', 'net1', 'altname', name);
  }
  set('down');
  set('address', '02:66:66:66:66:66');
  set('broadcast', '02:ff:ff:ff:ff:ff');
  set('alias', 'not yours', 'mtu', '1280', 'txqueuelen', '7', 'group', '99');
  set('promisc', 'on', 'allmulticast', 'on', 'arp', 'off', 'multicast', 'off');
  set('gso_max_size', '30000', 'gso_max_segs', '10', 'gro_max_size', '20000');
  set('mode', 'dormant');
  set('name', 'eth0');
  pod.exec('ip', 'link', 'set', 'eth0', 'up');
  pod.exec('ip', 'addr', 'add', '192.0.2.9/24', 'dev', 'eth0');
  pod.exec('tc', 'qdisc', 'add', 'dev', 'eth0', 'clsact');
  pod.exec('tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'htb');
  for (const struct of switches) podIoctl.set('eth0', struct, { 0: struct === 'genericReceiveOffload' ? 1 : 0 });
  await podEthtool.set(index, 'channels', { rx: 2, tx: 3 });
  await attachXdp(setup.podHandle, index);
}

it.runIf(isMachineRoot)(
  'a link returned by a pod regains names, MAC, MTU, flags, group, queues, limits, features, channels, XDP, qdiscs, addresses',
  async () => {
    const { host } = setup;
    host.exec('ip', 'link', 'set', 'ens1f0v0', 'alias', 'VF 0', 'mtu', '1400', 'txqueuelen', '500', 'group', '5');
    host.exec('ip', 'link', 'set', 'ens1f0v0', 'gso_max_size', '40000', 'up');
    host.exec('ip', 'link', 'property', 'add', 'dev', 'ens1f0v0', 'altname', 'enp59s0f0v0');
    host.exec('ip', 'addr', 'add', '198.51.100.7/24', 'dev', 'ens1f0v0');
    host.exec('ip', 'addr', 'add', '2001:db8::7/64', 'dev', 'ens1f0v0', 'nodad');
    host.exec('tc', 'qdisc', 'add', 'dev', 'ens1f0v0', 'root', 'pfifo');
    const { index } = await setup.vf();
    await setup.hostEthtool.set(index, 'features', { 'tx-gso-list': false });
    const [before, beforeByIp] = [await setup.state(index), shown(host, 'ens1f0v0')];
    const features = () => switches.map((struct) => setup.hostIoctl.get('ens1f0v0', struct)[0]);
    expect(features()).toEqual([1, 1, 0]);
    expect(before).toMatchObject({
      alias: 'VF 0',
      altNames: ['enp59s0f0v0'],
      group: 5,
      txQueueLength: 500,
      qdiscs: { root: 'pfifo' },
      offloadLimits: { gsoMaxBytes: 40_000 },
      addresses: ['198.51.100.7/24', '2001:db8::7/64'],
      ethtool: { channels: { rx: 4, tx: 4 }, features: { 'tx-tcp-segmentation': true, 'rx-gro': false } },
    });

    const { inPod } = await setup.toPod();
    await changeEverything(setup, inPod.index);
    expect(await scrubLink(setup.podConnection, inPod.index)).toEqual([]);
    const back = await setup.back(inPod);
    expect(await setup.restore(back.index, before)).toEqual([]);
    expect(await setup.state(back.index)).toEqual(before);
    expect(shown(host, 'ens1f0v0')).toEqual(beforeByIp);
    expect(features()).toEqual([1, 1, 0]);
  },
);

describe('a link that moves out of its pod', () => {
  const inOwnSysfs = (netns: TestNetns, script: string) =>
    netns.exec('unshare', '--mount', 'sh', '-c', `mount -t sysfs sysfs /sys && cd /sys/class/net && ${script}`).trim();

  it('loses addresses, routes and other state that the kernel keeps per namespace', async () => {
    const { pod, host } = setup;
    const { before, inPod } = await setup.toPod();
    const sysctl = (netns: TestNetns, name: string) => netns.exec('cat', `/proc/sys/net/ipv4/conf/${name}/arp_ignore`);
    const ofHost = sysctl(host, 'lo');
    for (const command of [
      'addr add 192.0.2.9/24 dev net1',
      'route add 198.51.100.0/24 via 192.0.2.1',
      'route add 198.51.101.0/24 dev net1 table 77',
      'neigh add 192.0.2.8 lladdr 02:00:00:00:00:08 dev net1',
      'maddr add 33:33:00:00:12:34 dev net1',
    ])
      pod.exec('ip', ...command.split(' '));
    pod.exec('bridge', 'fdb', 'add', '02:00:00:00:77:77', 'dev', 'net1', 'self');
    pod.exec('sh', '-c', 'echo 8 >/proc/sys/net/ipv4/conf/net1/arp_ignore');
    pod.exec('tc', 'qdisc', 'add', 'dev', 'net1', 'root', 'htb');
    const { name } = await setup.back(inPod);
    const shownBy = (...command: string[]) => host.exec(...(command as [string, ...string[]]));
    expect([
      shownBy('ip', 'addr', 'show', 'dev', name, 'scope', 'global').includes('192.0.2.9'),
      shownBy('ip', 'route', 'show', 'table', 'all', 'dev', name).trim(),
      shownBy('ip', 'neigh', 'show', 'dev', name).trim(),
      shownBy('ip', 'maddr', 'show', 'dev', name).includes('33:33:00:00:12:34'),
      shownBy('bridge', 'fdb', 'show', 'dev', name).includes('02:00:00:00:77:77'),
      shownBy('tc', 'qdisc', 'show', 'dev', name).includes('htb'),
    ]).toEqual([false, '', '', false, false, false]);
    expect(sysctl(host, name)).toBe(ofHost);
    expect(await setup.restore(inPod.index, before)).toEqual([]);
  });

  // docs/reliability.md names these: of a VF, the driver is bound again, which replaces the interface.
  it.runIf(isMachineRoot)(
    'keeps its sysfs settings and a macvlan on top of it, because neither moving nor restoring resets them',
    async () => {
      const { pod, host } = setup;
      const { before, inPod } = await setup.toPod();
      pod.exec('ip', 'link', 'add', 'link', 'net1', 'name', 'mv0', 'type', 'macvlan');
      inOwnSysfs(pod, 'echo 12345 >net1/gro_flush_timeout; echo 1 >net1/queues/rx-0/rps_cpus');
      const back = await setup.back(inPod);
      expect(await setup.restore(back.index, before)).toEqual([]);
      const read = `cat ${back.name}/gro_flush_timeout ${back.name}/queues/rx-0/rps_cpus`;
      expect(inOwnSysfs(host, read).split('\n')).toEqual(['12345', expect.stringMatching(/1$/)]);
      expect(pod.exec('ip', '-brief', 'link')).toContain(`mv0@if${back.index}`);
    },
  );
});

describe('ethtool', () => {
  it.runIf(isMachineRoot)('reads and writes settings through its ioctls', async () => {
    const { host, hostEthtool, hostIoctl } = setup;
    host.exec('ip', 'tuntap', 'add', 'tap0', 'mode', 'tap');
    const { index } = (await setup.hostConnection.link({ name: 'tap0' }))!;
    await hostEthtool.set(index, 'coalescing', { rxMaxFrames: 17 });
    // The second word is rx_max_coalesced_frames.
    expect(hostIoctl.get('tap0', 'coalescing')[1]).toBe(17);
    hostIoctl.set('tap0', 'coalescing', { 1: 4 });
    hostIoctl.set('tap0', 'genericReceiveOffload', { 0: 0 });
    expect(await hostEthtool.read(index)).toMatchObject({
      coalescing: { rxMaxFrames: 4 },
      features: expect.objectContaining({ 'rx-gro': false, 'tx-tcp-segmentation': true }),
    });
    await hostEthtool.set(index, 'features', { 'rx-gro': true });
    expect(hostIoctl.get('tap0', 'genericReceiveOffload')).toEqual([1]);
  });

  it('reports operations that the NIC driver lacks, and a missing link', async () => {
    const { index } = await setup.vf();
    await expect(setup.hostEthtool.set(index, 'coalescing', { rxUsecs: 3 })).rejects.toMatchObject({
      code: 'netlink-refused',
      operation: 'set coalescing (rxUsecs) of link',
      hint: expect.stringContaining('driver'),
    });
    await expect(setup.hostEthtool.read(4711)).rejects.toMatchObject({ errno: 'ENODEV', interfaceName: '#4711' });
  });
});

describe('applyEthtool', () => {
  // The ioctl shows TCP segmentation as on while one of its features is.
  const segmentation = [
    'tx-tcp-segmentation',
    'tx-tcp-ecn-segmentation',
    'tx-tcp-mangleid-segmentation',
    'tx-tcp6-segmentation',
  ];
  const features = { ...Object.fromEntries(segmentation.map((name) => [name, false])), 'rx-gro': true, highdma: true };
  const config = { features, channels: { rx: 2, tx: 3 } };

  it('sets features and channels in the pod, which are restored on the host', async () => {
    const { before, inPod } = await setup.toPod();
    expect(await findOtherEthtool(setup.podEthtool, inPod.index, config)).toEqual({
      wanted: expect.stringMatching(/^channels.rx=2, channels.tx=3, features.tx-tcp-segmentation=false.*rx-gro=true$/),
      found: expect.stringMatching(/^channels.rx=4, channels.tx=4, features.tx-tcp-segmentation=true.*rx-gro=false$/),
    });
    for (let round = 0; round < 2; round++) await applyEthtool(setup.podEthtool, inPod.index, config);
    expect(setup.podIoctl.get('net1', 'tcpSegmentation')).toEqual([0]);
    expect(setup.podIoctl.get('net1', 'genericReceiveOffload')).toEqual([1]);
    expect(await setup.podEthtool.read(inPod.index)).toMatchObject({ channels: { rx: 2, tx: 3 } });
    expect(await findOtherEthtool(setup.podEthtool, inPod.index, config)).toBeUndefined();

    const { index } = await setup.back(inPod);
    expect(await findOtherEthtool(setup.hostEthtool, index, config)).toBeUndefined();
    expect(await setup.restore(index, before)).toEqual([]);
    expect(await setup.state(index)).toEqual(before);
  });

  it.runIf(isMachineRoot)('sets coalescing parameters, including switches given as booleans', async () => {
    setup.host.exec('ip', 'tuntap', 'add', 'tap0', 'mode', 'tap');
    const { index } = (await setup.hostConnection.link({ name: 'tap0' }))!;
    await applyEthtool(setup.hostEthtool, index, { coalescing: { rxMaxFrames: 17 } });
    expect(setup.hostIoctl.get('tap0', 'coalescing')[1]).toBe(17);
  });

  it.each([
    [{ features: { 'rx-gro': true, 'no-such-feature': true } }, 'the driver has no no-such-feature'],
    [{ features: { gro: true } }, 'the driver has no gro, which the kernel calls rx-gro'],
    [
      { features: { 'tx-scatter-gather': false, 'tx-tcp-segmentation': true } },
      'the driver did not set tx-tcp-segmentation to true: it is still false',
    ],
    [{ features: { 'hw-tc-offload': true } }, 'the driver did not set hw-tc-offload to true: it is still false'],
    [{ privateFlags: { 'legacy-rx': true } }, 'the driver has no legacy-rx'],
    [{ rings: { rx: 64 } }, 'the driver has no rx'],
    [{ channels: { rx: 5 } }, 'cannot set channels (rx) of link'],
  ])('names the setting in %j that the driver rejects', async (refused, message) => {
    const { index } = await setup.vf();
    await expect(applyEthtool(setup.hostEthtool, index, refused)).rejects.toMatchObject({
      code: 'netlink-refused',
      message: expect.stringContaining(message),
    });
  });
});

describe('a link on its way back to the host', () => {
  const onHost = (...args: string[]) => setup.host.exec('ip', 'link', ...args);
  const inPod = (...args: string[]) => setup.pod.exec('ip', 'link', ...args);

  /** What the kernel makes of a VF whose namespace ends, and then udev: it is back as the pod left it. */
  async function comesBackByItself(index: number, name: string): Promise<Link> {
    await setup.podConnection.setLink(index, { name, netns: setup.hostHandle });
    const link = await setup.hostConnection.link({ name });
    if (link === undefined) throw new Error(`${name} did not arrive`);
    return link;
  }

  it('loses alternative names, which could be taken on the host', async () => {
    const { before, inPod: link } = await setup.toPod();
    // peer0 is another link of the host: since Linux 6.7 a link with such a name cannot be moved.
    for (const name of ['br-ex', 'peer0', 'x'.repeat(127)]) inPod('property', 'add', 'dev', 'net1', 'altname', name);
    const back = await setup.back(link);
    expect(back).toMatchObject({ name: 'ens1f0v0', altNames: [] });
    expect(await setup.restore(back.index, before)).toEqual([]);
    onHost('add', 'br-ex', 'type', 'bridge');
  });

  it('loses alternative names that are not valid text', async () => {
    const { before, inPod: link } = await setup.toPod();
    setup.pod.exec('bash', '-c', "ip link property add dev net1 altname $'caf\\xe9' altname $'\\xff\\xfe'");
    expect((await setup.podConnection.link({ index: link.index }))?.altNames).toHaveLength(2);
    expect(await scrubLink(setup.podConnection, link.index)).toEqual([]);
    expect((await setup.podConnection.link({ index: link.index }))?.altNames).toEqual([]);
    setup.pod.exec('bash', '-c', "ip link property add dev net1 altname $'\\xff'");
    const back = await comesBackByItself(link.index, 'net1');
    expect(await setup.restore(back.index, before)).toEqual([]);
    expect(await setup.state(back.index)).toEqual(before);
  });

  it('gets its name back although udev made it an alternative name', async () => {
    const { before, inPod: link } = await setup.toPod();
    const back = await comesBackByItself(link.index, 'net1');
    onHost('property', 'add', 'dev', 'net1', 'altname', 'ens1f0v0');
    expect(await setup.restore(back.index, before)).toEqual([]);
    expect(await setup.state(back.index)).toEqual(before);
  });

  it('is restored even if the snapshot has only the four properties that the kernel always reports', async () => {
    const { before, inPod: link } = await setup.toPod();
    const { name, hardwareAddress = '', mtuBytes, up } = before;
    const back = await comesBackByItself(link.index, 'net1');
    onHost('property', 'add', 'dev', 'net1', 'altname', 'ens1f0v0', 'altname', 'kept');
    onHost('set', 'dev', 'net1', 'mtu', '1300', 'address', '02:66:66:66:66:66', 'up');
    expect(await setup.restore(back.index, { name, hardwareAddress, mtuBytes, up })).toEqual([]);
    expect(await setup.state(back.index)).toMatchObject({ name, hardwareAddress, mtuBytes, up, altNames: ['kept'] });
  });

  it.each([
    ['is the name of another link', (taken: string) => onHost('add', taken, 'type', 'bridge')],
    [
      'is the alternative name of another link',
      (taken: string) => onHost('property', 'add', 'dev', 'peer0', 'altname', taken),
    ],
  ])('gets a free name, with an error, if its own name %s, and later its own name', async (_, take) => {
    const { before, inPod: link } = await setup.toPod();
    take('ens1f0v0');
    const back = await setup.back(link);
    expect(back.name).toMatch(/^netdra\d+$/);
    const failures = await setup.restore(back.index, before);
    expect(failures).toEqual([
      {
        property: 'name',
        error: expect.objectContaining({ code: 'netlink-refused', errno: 'EEXIST', retriable: true }),
      },
    ]);
    expect(failures[0]?.error).toMatchObject({ message: expect.stringMatching(/is taken by link #\d+/) });
    const { name: _name, ...rest } = before;
    expect(await setup.state(back.index)).toEqual({ ...rest, name: back.name });
    const other = (await setup.hostConnection.link({ name: 'ens1f0v0' }))!;
    if (other.name === 'peer0') await setup.hostConnection.removeAltNames(other.index);
    else await setup.hostConnection.deleteLink(other.index);
    expect(await setup.restore(back.index, before)).toEqual([]);
    expect(await setup.state(back.index)).toEqual(before);
  });

  it('gets a free name on the host, not its pod name, if another link has its old name', async () => {
    const { before, inPod: link } = await setup.toPod();
    onHost('add', 'ens1f0v0', 'type', 'bridge');
    onHost('add', 'netdra1', 'type', 'bridge');
    const back = await comesBackByItself(link.index, 'br-ex');
    expect(await setup.restore(back.index, before)).toMatchObject([{ property: 'name' }]);
    expect((await setup.hostConnection.link({ index: back.index }))?.name).toMatch(/^netdra\d+$/);
  });

  it('moves although its name in the pod is taken on the host', async () => {
    const { before, inPod: link } = await setup.toPod('peer0');
    const back = await setup.back(link);
    expect(await setup.restore(back.index, before)).toEqual([]);
    expect(await setup.state(back.index)).toEqual(before);
  });

  it('moves although a process in the pod keeps giving it alternative names that are taken on the host', async () => {
    const { inPod: link } = await setup.toPod();
    const loop = 'while sleep 0.001; do ip link property add dev net1 altname peer0 || true; done';
    const tenant = spawn('nsenter', [`--net=${setup.pod.path}`, 'bash', '-c', loop], { stdio: 'ignore' });
    try {
      await expect
        .poll(async () => (await setup.podConnection.link({ index: link.index }))?.altNames)
        .toEqual(['peer0']);
      expect(await setup.back(link)).toMatchObject({ name: 'ens1f0v0', altNames: [] });
    } finally {
      tenant.kill('SIGKILL');
    }
  });

  it('is not changed if it is already in its original state', async () => {
    const { index } = await setup.vf();
    await setup.hostConnection.setLink(index, { up: true });
    const before = await setup.state(index);
    const { hostConnection } = setup;
    const changes: unknown[] = [];
    const record = async (...change: unknown[]) => void changes.push(change);
    const recording = {
      link: hostConnection.link.bind(hostConnection),
      qdisc: hostConnection.qdisc.bind(hostConnection),
      addresses: hostConnection.addresses.bind(hostConnection),
      setLink: record,
      addAltName: record,
      removeAltNames: record,
      addQdisc: record,
      removeQdisc: record,
      addAddress: record,
      removeAddress: record,
      findRoutes: hostConnection.findRoutes.bind(hostConnection),
      entries: hostConnection.entries.bind(hostConnection),
      addEntry: record,
    };
    expect(await restoreLinkState(recording, index, before, setup.hostEthtool)).toEqual([]);
    expect(changes).toEqual([]);
    await hostConnection.setLink(index, { mtuBytes: 1400 });
    await restoreLinkState(recording, index, before, setup.hostEthtool);
    expect(changes).toEqual([[index, { mtuBytes: 1500 }]]);
  });

  it('is reported as missing if it was deleted', async () => {
    const before = await setup.state((await setup.vf()).index);
    expect(await setup.restore(4711, before)).toMatchObject([{ property: 'link', error: { errno: 'ENODEV' } }]);
    await expect(setup.state(4711)).rejects.toMatchObject({ errno: 'ENODEV' });
  });
});
