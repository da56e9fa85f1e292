import { spawnSync } from 'node:child_process';
import { readdirSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  findVf,
  formatCidr,
  type Link,
  moveLink,
  NetnsHandle,
  networkOf,
  openInNetns,
  parseCidr,
  RtnlConnection,
  toNetworkState,
} from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { HostAndPod } from './host-and-pod.ts';

const netlinkModule = fileURLToPath(new URL('../../src/node/netlink/index.ts', import.meta.url));

/** A host with a veth pair `vf0`/`peer0`, and a pod. */
class Setup extends HostAndPod {
  readonly podTarget = { netns: this.podHandle, connection: this.podConnection };
  readonly hostTarget = { netns: this.hostHandle, connection: this.hostConnection };

  async createPair(): Promise<Link> {
    const peer = { name: 'peer0' };
    await this.hostConnection.createVeth({ name: 'vf0', hardwareAddress: '02:00:00:00:00:07', peer });
    await this.hostConnection.setLink((await this.hostConnection.link(peer))!.index, { up: true });
    return (await this.hostConnection.link({ name: 'vf0' }))!;
  }
}

let setup: Setup;
beforeEach(() => {
  setup = new Setup();
});
afterEach(() => setup[Symbol.dispose]());

/** The addresses of a link as iproute2 sees them. */
function addressesByIp(netns: TestNetns, name: string): string[] {
  const [link] = netns.ip('addr', 'show', 'dev', name);
  const entries: { local: string; prefixlen: number }[] = link.addr_info;
  return entries.map(({ local, prefixlen }) => `${local}/${prefixlen}`).sort();
}

/** What the metadata would report of a link. */
async function readNetworkState(connection: RtnlConnection, index: number) {
  const [link, addresses] = await Promise.all([connection.link({ index }), connection.addresses(index)]);
  return toNetworkState(link!, addresses);
}

const ownNetns = () => readlinkSync('/proc/self/ns/net');
const openDescriptors = () => readdirSync('/proc/self/fd').length;

describe('a link on its way into a pod and back', () => {
  it('is found in a list filtered by index, name and MAC of the VF', async () => {
    await setup.createPair();
    const { hostConnection: host } = setup;
    const vf = (await host.link({ name: 'vf0' }))!;
    await host.setLink(vf.index, { alias: 'netdra fe00:00:02.0' });
    const all = await host.links();
    const identities = [
      { alias: 'netdra fe00:00:02.0' },
      { pciAddress: '0000:3b:02.1', hardwareAddress: '02:00:00:00:00:07' },
      { pciAddress: '0000:3b:02.1', alias: 'netdra fe00:00:02.0', hardwareAddress: '02:00:00:00:00:99' },
    ];
    for (const identity of identities) {
      const some = await host.links([identity]);
      expect(some.map(({ name }) => name)).toEqual(['vf0']);
      expect(findVf(some, identity)).toEqual(findVf(all, identity));
    }
    expect(await host.links([{ alias: 'netdra fe00:00:02.1' }])).toEqual([]);
    expect(await host.links([])).toEqual([]);
  });

  it('has the name, MAC, MTU, addresses and routes that iproute2 shows', async () => {
    const vf = await setup.createPair();
    const { podConnection, pod } = setup;
    const change = { name: 'net1', hardwareAddress: '02:00:00:00:00:aa', mtuBytes: 1400, up: true };
    const moved = await moveLink(setup.hostConnection, vf, setup.podTarget, change);
    await podConnection.addAddress(moved.index, '10.1.2.3/24', 'none');
    await podConnection.addAddress(moved.index, '2001:db8::5/64', 'none');
    const routes = [
      { destination: '0.0.0.0/0', gateway: '10.1.2.1' },
      { destination: '::/0', gateway: '2001:db8::1' },
      { destination: '192.0.2.0/24', gateway: '2001:db8::1' },
      { destination: '198.51.100.0/24' },
    ];
    for (const route of routes) await podConnection.addRoute({ ...route, index: moved.index });

    expect(await readNetworkState(podConnection, moved.index)).toEqual({
      interfaceName: 'net1',
      hardwareAddress: '02:00:00:00:00:aa',
      ips: ['10.1.2.3/24', '2001:db8::5/64'],
      tentative: false,
      mtuBytes: 1400,
      linkUp: true,
    });
    const [seen] = pod.ip('link', 'show', 'dev', 'net1');
    expect(seen).toMatchObject({ ifindex: moved.index, address: '02:00:00:00:00:aa', mtu: 1400, operstate: 'UP' });
    const all = (await podConnection.addresses(moved.index)).map(({ cidr }) => cidr).sort();
    expect(all).toEqual(addressesByIp(pod, 'net1'));
    expect(all.some((cidr) => cidr.startsWith('fe80:'))).toBe(true);
    const reachable = await podConnection.reachableAddresses();
    expect(reachable.map(({ cidr }) => cidr).sort()).toEqual(['10.1.2.3/24', '2001:db8::5/64']);
    const v4 = pod.ip('-4', 'route', 'show', 'dev', 'net1');
    expect(v4).toContainEqual(expect.objectContaining({ dst: 'default', gateway: '10.1.2.1' }));
    expect(v4).toContainEqual(
      expect.objectContaining({ dst: '192.0.2.0/24', via: { family: 'inet6', host: '2001:db8::1' } }),
    );
    expect(v4).toContainEqual(expect.objectContaining({ dst: '198.51.100.0/24', scope: 'link' }));
    const v6 = pod.ip('-6', 'route', 'show', 'dev', 'net1');
    expect(v6).toContainEqual(expect.objectContaining({ dst: 'default', gateway: '2001:db8::1' }));

    const destinations = ['0.0.0.0/0', '192.0.2.0/24', '198.51.100.0/24', '10.1.2.0/24', '::/0', '203.0.113.0/24'];
    const wanted = destinations.map((destination) => ({ destination }));
    const { found, isCut } = await podConnection.findRoutes(moved.index, wanted);
    expect(found[0]).toMatchObject({ links: [moved.index], isUnicast: true });
    expect(found.map((each) => each?.destination)).toEqual([...destinations.slice(0, -1), undefined]);
    expect(isCut).toBe(false);
    const defaults = await podConnection.defaultRoutes();
    expect(defaults.map(({ destination }) => destination).sort()).toEqual(['0.0.0.0/0', '::/0']);
  });

  it('has exactly one route per address, to the network of the address, as class limits assume', async () => {
    const vf = await setup.createPair();
    const { podConnection } = setup;
    const { index } = await moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1', up: true });
    const addresses = ['203.0.113.7/32', '192.0.2.10/1', '10.1.99.99/8', '2001:db8::7/128', '2001:db9::1/1'];
    for (const cidr of addresses) await podConnection.addAddress(index, cidr, 'none');
    const networks = addresses
      .map(parseCidr)
      .map(networkOf)
      .map((each) => formatCidr(each.octets, each.prefixLength));
    const shown = ['-4', '-6'].flatMap((family) =>
      setup.pod.ip(family, 'route', 'show', 'table', 'all', 'dev', 'net1'),
    );
    const routes = shown.map(({ dst }: { dst: string }) => dst);
    // Besides those of single hosts, which are its own addresses, and those of any interface.
    const isHost = (network: string) => /\/(32|128)$/.test(network) || !network.includes('/');
    const reached = routes.filter((each) => !isHost(each) && !['fe80::/64', 'ff00::/8'].includes(each));
    expect(reached.sort()).toEqual(networks.filter((each) => !isHost(each)).sort());
  });

  it('returns under its old name, without addresses, and is found by its alias', async () => {
    const vf = await setup.createPair();
    await setup.hostConnection.setLink(vf.index, { alias: 'netdra:fe00:00:02.0' });
    const moved = await moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1', up: true });
    await setup.podConnection.addAddress(moved.index, '10.1.2.3/24');
    expect(await setup.hostConnection.link({ name: 'vf0' })).toBeUndefined();
    const there = findVf(await setup.podConnection.links(), { alias: 'netdra:fe00:00:02.0' });
    expect(there?.name).toBe('net1');

    const back = await moveLink(setup.podConnection, there!, setup.hostTarget, { name: 'vf0' });
    expect(back).toMatchObject({ name: 'vf0', up: false, alias: 'netdra:fe00:00:02.0' });
    expect(await setup.hostConnection.addresses(back.index)).toEqual([]);
    expect(await setup.podConnection.link({ name: 'net1' })).toBeUndefined();
  });

  it('stays in its pod if another link of the pod has taken its interface index', async () => {
    const vf = await setup.createPair();
    const moved = await moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1' });
    using nested = new TestNetns('nested');
    setup.pod.exec('ip', 'link', 'set', 'net1', 'netns', nested.path);
    setup.pod.exec('ip', 'link', 'add', 'net1', 'index', `${moved.index}`, 'type', 'bridge');
    await expect(
      moveLink(setup.podConnection, moved, setup.hostTarget, { name: 'vf0' }, { acceptOtherName: true }),
    ).rejects.toMatchObject({ errno: 'ENODEV', interfaceName: `#${moved.index}` });
    expect(await setup.hostConnection.link({ name: 'vf0' })).toBeUndefined();
    expect(await setup.podConnection.link({ name: 'net1' })).toMatchObject({ kind: 'bridge' });
  });

  it('can get a name in the pod that another link on the host already has', async () => {
    const vf = await setup.createPair();
    await setup.hostConnection.createBridge({ name: 'net1' });
    const moved = await moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1' });
    expect(moved.kind).toBe('veth');
  });

  it('returns although another link in the pod has the name that it had on the host', async () => {
    const vf = await setup.createPair();
    await setup.podConnection.createBridge({ name: 'vf0' });
    const moved = await moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1' });
    expect(moved).toMatchObject({ name: 'net1', kind: 'veth' });
  });

  it('stays on the host unchanged if its name is taken in the pod', async () => {
    const vf = await setup.createPair();
    await setup.podConnection.createBridge({ name: 'net1' });
    await expect(
      moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1', mtuBytes: 1400 }),
    ).rejects.toMatchObject({ code: 'netlink-refused', errno: 'EEXIST', interfaceName: 'net1', netns: setup.pod.path });
    expect(await setup.hostConnection.link({ index: vf.index })).toEqual(vf);
  });

  it('gets and reports another index if its own is taken in the pod', async () => {
    const vf = await setup.createPair();
    while (!(await setup.podConnection.links()).some(({ index }) => index >= vf.index)) {
      await setup.podConnection.createBridge({ name: `br${(await setup.podConnection.links()).length}` });
    }
    const moved = await moveLink(setup.hostConnection, vf, setup.podTarget, { name: 'net1' });
    expect(moved.index).not.toBe(vf.index);
    expect((await readNetworkState(setup.podConnection, moved.index)).interfaceName).toBe('net1');
  });
});

describe('RtnlConnection, reading a namespace', () => {
  it('lists all links that iproute2 lists', async () => {
    const vf = await setup.createPair();
    await setup.hostConnection.createBridge({ name: 'br0', hardwareAddress: '02:00:00:00:00:b0', mtuBytes: 1300 });
    const bridge = (await setup.hostConnection.link({ name: 'br0' }))!;
    await setup.hostConnection.setLink(vf.index, { master: bridge.index });
    setup.host.exec('ip', 'link', 'property', 'add', 'dev', 'vf0', 'altname', 'a-rather-long-alternative-name');
    const links = await setup.hostConnection.links();
    const seen: {
      ifindex: number;
      ifname: string;
      address: string;
      mtu: number;
      master?: string;
      altnames?: string[];
    }[] = setup.host.ip('link');
    expect(
      links.map(({ index, name, hardwareAddress, mtuBytes, master, altNames }) => ({
        index,
        name,
        hardwareAddress,
        mtuBytes,
        master: links.find((link) => link.index === master)?.name,
        altNames,
      })),
    ).toEqual(
      seen.map(({ ifindex, ifname, address, mtu, master, altnames = [] }) => ({
        index: ifindex,
        name: ifname,
        hardwareAddress: address,
        mtuBytes: mtu,
        master,
        altNames: altnames,
      })),
    );
    await setup.hostConnection.setLink(vf.index, { master: 0 });
    expect((await setup.hostConnection.link({ index: vf.index }))?.master).toBeUndefined();
  });

  it('omits an address during duplicate address detection, and reports it afterwards', async () => {
    const vf = await setup.createPair();
    await setup.hostConnection.setLink(vf.index, { up: true });
    await setup.hostConnection.addAddress(vf.index, '2001:db8::9/64');
    const early = await readNetworkState(setup.hostConnection, vf.index);
    expect(early).toMatchObject({ ips: [], tentative: true });
    await expect
      .poll(() => readNetworkState(setup.hostConnection, vf.index))
      .toMatchObject({ ips: ['2001:db8::9/64'], tentative: false });
  });

  it('never reports an address that turned out to belong to another host', async () => {
    const vf = await setup.createPair();
    const peer = (await setup.hostConnection.link({ name: 'peer0' }))!;
    const inPod = await moveLink(setup.hostConnection, peer, setup.podTarget, { up: true });
    await setup.podConnection.addAddress(inPod.index, '2001:db8::9/64', 'none');
    await setup.hostConnection.setLink(vf.index, { up: true });
    await setup.hostConnection.addAddress(vf.index, '2001:db8::9/64');
    const failed = async () => (await setup.hostConnection.addresses(vf.index)).some(({ dadFailed }) => dadFailed);
    await expect.poll(failed).toBe(true);
    expect((await readNetworkState(setup.hostConnection, vf.index)).ips).not.toContain('2001:db8::9/64');
  });

  it('reads at most 1,024 of the 3,000 addresses of a link, and still handles the next request', async () => {
    const vf = await setup.createPair();
    const hostNetns = setup.host.path;
    const lines = Array.from({ length: 3_000 }, (_, i) => `addr add 10.${i >> 8}.${i & 255}.1/32 dev vf0`);
    const { status } = spawnSync('nsenter', [`--net=${hostNetns}`, 'ip', '-batch', '-'], { input: lines.join('\n') });
    expect(status).toBe(0);
    expect(await setup.hostConnection.addresses(vf.index)).toHaveLength(1_024);
    expect((await setup.hostConnection.link({ name: 'vf0' }))?.index).toBe(vf.index);
    expect(await setup.hostConnection.addresses()).toHaveLength(3_000);
  });

  it('keeps the results of fifty concurrent readers of two namespaces apart', async () => {
    await setup.createPair();
    await setup.podConnection.createBridge({ name: 'inpod' });
    const names = await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        using connection = RtnlConnection.open(i % 2 === 0 ? setup.hostHandle : setup.podHandle);
        return (await connection.links()).map(({ name }) => name).sort();
      }),
    );
    for (const [i, found] of names.entries()) {
      expect(found).toEqual(i % 2 === 0 ? ['lo', 'peer0', 'vf0'] : ['inpod', 'lo']);
    }
  });

  it('reads a table of many datagrams while links are added and removed', async () => {
    const { host, hostConnection } = setup;
    const batch = Array.from({ length: 100 }, (_, i) => `link add b${i} type bridge`).join('\n');
    const file = join(tmpdir(), `netdra-batch-${process.pid}`);
    writeFileSync(file, batch);
    try {
      host.exec('ip', '-batch', file);
    } finally {
      rmSync(file);
    }
    using churn = RtnlConnection.open(setup.hostHandle);
    for (let round = 0; round < 20; round++) {
      const [links] = await Promise.all([hostConnection.links(), churn.createBridge({ name: `x${round}` })]);
      expect(links.filter(({ name }) => name.startsWith('b')).length).toBe(100);
    }
  });
});

it('traffic counters are read from the kernel, and missing for a deleted link', async () => {
  const { host, hostConnection } = setup;
  const vf = await setup.createPair();
  await hostConnection.setLink(vf.index, { up: true });
  host.exec('ip', 'neigh', 'add', '192.0.2.9', 'lladdr', '02:00:00:00:00:09', 'dev', 'vf0');
  host.exec('ip', 'route', 'add', '192.0.2.9', 'dev', 'vf0');
  const before = await hostConnection.linkTraffic(vf.index);
  host.exec('bash', '-c', 'for n in 1 2 3; do echo hello > /dev/udp/192.0.2.9/9; done');
  const after = await hostConnection.linkTraffic(vf.index);
  const peer = await hostConnection.link({ name: 'peer0' });
  expect((after?.txPackets ?? 0) - (before?.txPackets ?? 0)).toBeGreaterThanOrEqual(3);
  expect((after?.txBytes ?? 0) - (before?.txBytes ?? 0)).toBeGreaterThanOrEqual(3 * 48);
  expect(after).toMatchObject({ rxErrors: 0, txErrors: 0 });
  expect((await hostConnection.linkTraffic(peer!.index))?.rxPackets).toBeGreaterThanOrEqual(3);
  // Not a PF.
  expect(await hostConnection.vfTraffic(vf.index)).toEqual([]);
  await hostConnection.deleteLink(vf.index);
  expect(await hostConnection.linkTraffic(vf.index)).toBeUndefined();
});

describe('netlink errors', () => {
  it('name the kernel’s errno, the operation and the namespace', async () => {
    const vf = await setup.createPair();
    await expect(setup.hostConnection.createVeth({ name: 'vf0', peer: { name: 'other' } })).rejects.toMatchObject({
      code: 'netlink-refused',
      errno: 'EEXIST',
      interfaceName: 'vf0',
      netns: setup.host.path,
      hint: expect.any(String),
    });
    await setup.hostConnection.addAddress(vf.index, '10.0.0.1/24');
    await expect(setup.hostConnection.addAddress(vf.index, '10.0.0.1/24')).rejects.toMatchObject({ errno: 'EEXIST' });
    await expect(setup.hostConnection.removeAddress(vf.index, '10.0.0.2/24')).rejects.toMatchObject({
      errno: 'EADDRNOTAVAIL',
    });
    await expect(setup.hostConnection.setLink(4711, { mtuBytes: 1400 })).rejects.toMatchObject({
      errno: 'ENODEV',
      interfaceName: '#4711',
    });
    await expect(setup.hostConnection.deleteLink(4711)).rejects.toMatchObject({ errno: 'ENODEV' });
    expect(await setup.hostConnection.link({ index: 4711 })).toBeUndefined();
    expect(await setup.hostConnection.link({ name: 'absent' })).toBeUndefined();
  });

  it.each([
    ['0.0.0.0/0', '192.0.2.1'],
    ['::/0', '2001:db8::1'],
  ])('say that the gateway of a route to %s is unreachable', async (destination, gateway) => {
    const vf = await setup.createPair();
    await setup.hostConnection.setLink(vf.index, { up: true });
    await expect(setup.hostConnection.addRoute({ destination, gateway, index: vf.index })).rejects.toMatchObject({
      code: 'netlink-refused',
      hint: expect.stringContaining('gateway'),
    });
  });
  it('are raised for invalid arguments before the kernel is called', async () => {
    const vf = await setup.createPair();
    const connection = setup.hostConnection;
    const attempts = [
      connection.setLink(vf.index, { name: 'a/b', mtuBytes: 1400 }),
      connection.addAddress(vf.index, '10.0.0.1/99'),
      connection.addRoute({ destination: '10.0.0.1/8', index: vf.index }),
      connection.createVeth({ name: 'ok', peer: { name: 'sixteen-bytes-xx' } }),
      connection.link({ name: '' }),
    ];
    for (const attempt of attempts) await expect(attempt).rejects.toMatchObject({ code: 'netlink-invalid' });
    expect(await connection.link({ index: vf.index })).toEqual(vf);
    expect(await connection.link({ name: 'ok' })).toBeUndefined();
  });
});

describe('network namespaces', () => {
  it('are identified by their inode, not by their path', () => {
    using again = setup.pod.open();
    expect(again.equals(setup.podHandle)).toBe(true);
    expect(again.equals(setup.hostHandle)).toBe(false);
    expect(setup.podHandle.inode.ino).toBe(statSync(setup.pod.path, { bigint: true }).ino);
  });

  it('are reported as missing after their deletion', () => {
    expect(() => NetnsHandle.open('/proc/self/ns/no-such')).toThrow(
      expect.objectContaining({ code: 'netns-missing', path: '/proc/self/ns/no-such' }),
    );
    setup.pod.unmount();
    expect(() => NetnsHandle.open(setup.pod.path)).toThrow(
      expect.objectContaining({ code: 'netns-invalid', hint: expect.stringContaining('mountPropagation') }),
    );
  });

  it('stay alive and reachable as long as a connection is open', async () => {
    const vf = await setup.createPair();
    using pod = new TestNetns('short-lived');
    const handle = pod.open();
    const connection = RtnlConnection.open(handle);
    await moveLink(setup.hostConnection, vf, { netns: handle, connection }, { name: 'net1' });
    handle[Symbol.dispose]();
    pod.unmount();
    expect((await connection.links()).map(({ name }) => name)).toContain('net1');
    connection[Symbol.dispose]();
    // The kernel takes namespaces down in the background; a veth end takes its peer along.
    await expect.poll(() => setup.hostConnection.link({ name: 'peer0' })).toBeUndefined();
  });

  it('are left again even if the operation in them fails', () => {
    const before = ownNetns();
    const inside = openInNetns(setup.podHandle, () => readlinkSync('/proc/thread-self/ns/net'));
    expect(inside).toBe(`net:[${setup.podHandle.inode.ino}]`);
    expect(() =>
      openInNetns(setup.podHandle, () => {
        throw new Error('inside');
      }),
    ).toThrow('inside');
    expect(() => openInNetns(setup.podHandle, async () => {})).toThrow(TypeError);
    expect(ownNetns()).toBe(before);
  });

  it('can be opened repeatedly without leaking descriptors', async () => {
    const cycle = async () => {
      using handle = setup.pod.open();
      using connection = RtnlConnection.open(handle);
      expect(await connection.link({ name: 'lo' })).toBeDefined();
    };
    await cycle();
    const before = openDescriptors();
    for (let round = 0; round < 500; round++) await cycle();
    for (let round = 0; round < 50; round++) expect(() => NetnsHandle.open('/dev/null')).toThrow();
    await expect.poll(openDescriptors).toBeLessThanOrEqual(before);
  });

  it('end the process if a thread that entered a namespace cannot return to its own namespace', () => {
    const program = `
      import { closeSync, readdirSync, readlinkSync, writeSync } from 'node:fs';
      import { NetnsHandle, openInNetns } from ${JSON.stringify(netlinkModule)};
      const own = readlinkSync('/proc/self/ns/net');
      const handle = NetnsHandle.open(${JSON.stringify(setup.pod.path)});
      openInNetns(handle, () => {
        for (const fd of readdirSync('/proc/self/fd')) {
          try {
            if (readlinkSync('/proc/self/fd/' + fd) === own) closeSync(Number(fd));
          } catch {}
        }
      });
      writeSync(1, 'went on');
    `;
    const child = spawnSync(process.execPath, ['--input-type=module-typescript', '--eval', program], {
      encoding: 'utf8',
      cwd: tmpdir(),
    });
    expect(child.signal).toBe('SIGABRT');
    expect(child.stderr).toContain('cannot return to its own network namespace (EBADF)');
    expect(child.stdout).not.toContain('went on');
  });
});

it('a namespace of another type (UTS) cannot be entered', () => {
  using uts = NetnsHandle.open('/proc/self/ns/uts');
  expect(() => RtnlConnection.open(uts)).toThrow(
    expect.objectContaining({ code: 'netns-refused', errno: 'EINVAL', path: '/proc/self/ns/uts' }),
  );
  expect(() => openInNetns(uts, () => expect.unreachable())).toThrow('/proc/self/ns/uts');
});
