import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { locateTools } from '../../e2e/node/tools.ts';
import { Attachments, CniAttacher, CniCleanUp, KernelNetworks } from '../../src/driver/sandbox/index.ts';
import { type SandboxPlace, Store, type StoredDevice, type VfConfig } from '../../src/driver/state/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { CniRunner } from '../../src/node/cni/index.ts';
import type { VfInfo } from '../../src/node/netlink/index.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const never = new AbortController().signal;
const pciAddress = (index: number) => `0000:3b:02.${index}`;

/**
 * Attachments with a real store and real CNI plugins. VFs are ends of veth pairs in the namespace that the test runs in,
 * told apart by their alias, as simulated ones are.
 */
class Bench implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly #dir = this.#stack.use(tempDir()).path;
  readonly store = this.#stack.use(new Store(join(this.#dir, 'state.db')));
  readonly logger = new RecordingLogger();
  readonly #networks = this.#stack.use(new KernelNetworks({ procSysDir: '/proc/sys' }));
  readonly #leasesDir = join(this.#dir, 'leases');
  readonly runner = this.#stack.use(
    new CniRunner({
      binDirs: [locateTools(process.env).cniBinDir],
      cacheDir: join(this.#dir, 'cni'),
      clock: systemClock,
      logger: this.logger,
    }),
  );
  /** VFs that were configured from outside because they had left their pod. */
  readonly assured: string[] = [];
  /** What the PF has set for all VFs. */
  adminInfo: Omit<VfInfo, 'vfIndex'> | undefined;
  readonly #attachments = new Attachments({
    networks: this.#networks,
    vfs: {
      linkKey: (address) => ({ alias: `vf ${address}` }),
      adminInfo: async ({ vfIndex = 0 }) => this.adminInfo && { vfIndex, ...this.adminInfo },
      ensureLink: async () => undefined,
      isUnbound: async () => false,
      recreate: async () => undefined,
    },
    cni: new CniAttacher({ runner: this.runner, clock: systemClock, logger: this.logger }),
    store: this.store,
    clock: systemClock,
  });
  readonly cleanUp = new CniCleanUp({
    runner: this.runner,
    store: this.store,
    clock: systemClock,
    logger: this.logger,
  });

  /** A pair whose one end is the VF. */
  createVf(index: number): void {
    ip(
      'link',
      'add',
      `vf${index}`,
      'address',
      `02:00:00:00:00:0${index}`,
      'type',
      'veth',
      'peer',
      'name',
      `peer${index}`,
    );
    ip('link', 'set', `vf${index}`, 'alias', `vf ${pciAddress(index)}`);
    ip('link', 'set', `peer${index}`, 'up');
    // Deleting one end deletes the other, wherever it is; the kernel may have done so with the pod.
    this.#stack.defer(() => {
      // The kernel may be at it in this moment: only one that stays is an error.
      for (let tries = 0; links().includes(`peer${index}`); tries++) {
        spawnSync('ip', ['link', 'delete', `peer${index}`]);
        if (tries === 100) throw new Error(`peer${index} cannot be deleted`);
      }
    });
  }

  /** Devices of a claim that is prepared. */
  prepare(claim: string, devices: { index: number; config: VfConfig; userSpace?: boolean }[]): void {
    const stored = devices.map(({ index, config, userSpace = false }): StoredDevice => {
      const vfio = userSpace ? { vfio: { device: '/dev/vfio/42', iommuGroup: '42' } } : {};
      const address = { pciAddress: pciAddress(index), pfAddress: '0000:3b:00.0', vfIndex: index };
      return {
        ...address,
        pool: 'p',
        name: `0000-3b-02-${index}`,
        request: 'vf',
        config,
        access: { nodes: [], ...vfio },
      };
    });
    const identity = { uid: claim, namespace: 'default', name: claim };
    this.store.putClaim({ identity, podUids: ['pod-uid'], state: 'prepared', devices: stored });
  }

  /** What a sandbox does for all devices of a claim. */
  async attach(claim: string, pod: TestNetns, sandboxId = 'sandbox1', podUid = 'pod-uid') {
    using namespace = this.#networks.open(pod.path);
    if (namespace === undefined) throw new Error(`there is no namespace at ${pod.path}`);
    const links = this.#attachments.podLinks(namespace);
    const place: SandboxPlace = { podUid, podNamespace: 'default', podName: 'app', sandboxId, netnsPath: pod.path };
    const states = [];
    for (const device of this.devices(claim)) {
      const assure = async () => void this.assured.push(device.pciAddress);
      states.push(await this.#attachments.attach(claim, device, place, links, never, assure));
    }
    return states;
  }

  async detach(claim: string): Promise<void> {
    for (const device of this.devices(claim)) await this.#attachments.detach(claim, device);
  }

  async detachLost(claim: string): Promise<void> {
    for (const device of this.devices(claim)) await this.#attachments.detachLost(device);
  }

  devices(claim: string): StoredDevice[] {
    return (this.store.claim(claim)?.devices ?? []).map((device) => ({ ...device }));
  }

  newPod(): TestNetns {
    return this.#stack.use(new TestNetns('pod'));
  }

  ipam(rangeEnd = '10.89.7.20') {
    const ranges = [[{ subnet: '10.89.7.0/24', rangeStart: '10.89.7.10', rangeEnd }]];
    return { type: 'host-local', dataDir: this.#leasesDir, ranges };
  }

  /** Addresses that host-local has given away, in any network. */
  leases(): string[] {
    if (!existsSync(this.#leasesDir)) return [];
    const files = readdirSync(this.#leasesDir).flatMap((network) => readdirSync(join(this.#leasesDir, network)));
    return files.filter((name) => /^\d+\./.test(name)).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

let bench: Bench;
beforeEach(() => {
  bench = new Bench();
});
afterEach(() => bench[Symbol.asyncDispose]());

function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8' });
}
const links = (): string[] => JSON.parse(ip('-j', 'link')).map(({ ifname }: { ifname: string }) => ifname);
const inPod = (pod: TestNetns) =>
  pod
    .ip('addr', 'show')
    .filter(({ ifname }: { ifname: string }) => ifname !== 'lo')
    .map(({ ifname, address, mtu }: { ifname: string; address: string; mtu: number }) => ({ ifname, address, mtu }));

describe('several VFs of one pod', () => {
  it('come into it from one claim with three and another with one, each as asked, and all go back', async () => {
    for (const index of [1, 2, 3, 4]) bench.createVf(index);
    const before = JSON.parse(ip('-j', 'link')).map(({ ifname, mtu }: { ifname: string; mtu: number }) => [
      ifname,
      mtu,
    ]);
    bench.prepare('three', [
      { index: 1, config: { interfaceName: 'net0', mtu: 1400, addresses: ['192.0.2.1/24'] } },
      { index: 2, config: { interfaceName: 'net1', ipam: bench.ipam() } },
      { index: 3, config: { interfaceName: 'net2', sysctls: { 'net.ipv4.conf.IFNAME.arp_ignore': 2 } } },
    ]);
    bench.prepare('one', [{ index: 4, config: { macAddress: '02:AA:00:00:00:04' } }]);
    const pod = bench.newPod();
    const states = [...(await bench.attach('three', pod)), ...(await bench.attach('one', pod))];
    expect(states).toMatchObject([
      { interfaceName: 'net0', mtuBytes: 1400, ips: ['192.0.2.1/24'], hardwareAddress: '02:00:00:00:00:01' },
      { interfaceName: 'net1', ips: ['10.89.7.10/24'] },
      { interfaceName: 'net2' },
      { interfaceName: 'vf4', hardwareAddress: '02:aa:00:00:00:04' },
    ]);
    expect(
      inPod(pod)
        .map(({ ifname }: { ifname: string }) => ifname)
        .sort(),
    ).toEqual(['net0', 'net1', 'net2', 'vf4']);
    expect(pod.exec('cat', '/proc/sys/net/ipv4/conf/net2/arp_ignore').trim()).toBe('2');
    await bench.detach('one');
    expect(inPod(pod)).toHaveLength(3);
    await bench.detach('three');
    expect(inPod(pod)).toEqual([]);
    expect(bench.leases()).toEqual([]);
    const after = JSON.parse(ip('-j', 'link')).map(({ ifname, mtu }: { ifname: string; mtu: number }) => [ifname, mtu]);
    expect(after.sort()).toEqual(before.sort());
  });

  it('get different addresses of one pool, also when nobody has named the interfaces', async () => {
    for (const index of [1, 2]) bench.createVf(index);
    const config = { ipam: bench.ipam() };
    bench.prepare('c', [
      { index: 1, config },
      { index: 2, config },
    ]);
    const pod = bench.newPod();
    expect((await bench.attach('c', pod)).map(({ ips }) => ips)).toEqual([['10.89.7.10/24'], ['10.89.7.11/24']]);
    // Tried again, as after a failure: nothing more is taken from the pool.
    expect((await bench.attach('c', pod)).map(({ ips }) => ips)).toEqual([['10.89.7.10/24'], ['10.89.7.11/24']]);
    expect(bench.leases()).toEqual(['10.89.7.10', '10.89.7.11']);
    await bench.detach('c');
    expect(bench.leases()).toEqual([]);
  });
});

describe('a VF in user space', () => {
  const config = { interfaceName: 'dpdk0', mtu: 9000, addresses: ['2001:DB8:0::7/64'] };

  it('is told by what the PF, the claim and the IPAM plugin say, and has no interface', async () => {
    bench.adminInfo = { hardwareAddress: '02:bb:00:00:00:07', vlan: { id: 7, priority: 0 } };
    bench.prepare('dpdk', [{ index: 1, config: { ...config, ipam: bench.ipam() }, userSpace: true }]);
    const pod = bench.newPod();
    expect(await bench.attach('dpdk', pod)).toEqual([
      {
        interfaceName: 'dpdk0',
        hardwareAddress: '02:bb:00:00:00:07',
        ips: ['10.89.7.10/24', '2001:db8::7/64'],
        tentative: false,
        mtuBytes: 9000,
        vlan: 7,
      },
    ]);
    expect(inPod(pod)).toEqual([]);
    expect(bench.leases()).toEqual(['10.89.7.10']);
    pod.unmount();
    await bench.detach('dpdk');
    expect(bench.leases()).toEqual([]);
  });

  it('gives the address back that it had in an earlier sandbox of its pod', async () => {
    bench.prepare('dpdk', [{ index: 1, config: { ipam: bench.ipam() }, userSpace: true }]);
    await bench.attach('dpdk', bench.newPod(), 'sandbox1');
    const [state] = await bench.attach('dpdk', bench.newPod(), 'sandbox2');
    expect(bench.leases().map((address) => `${address}/24`)).toEqual(state?.ips);
    await bench.detach('dpdk');
    expect(bench.leases()).toEqual([]);
  });

  it('is not given to another pod', async () => {
    bench.prepare('dpdk', [{ index: 1, config, userSpace: true }]);
    const pod = bench.newPod();
    await bench.attach('dpdk', pod);
    await expect(bench.attach('dpdk', bench.newPod(), 'sandbox2', 'other-pod')).rejects.toMatchObject({
      code: 'vf-busy',
      message: expect.stringContaining('in the sandbox of pod default/app'),
    });
  });
});

describe('a VF that CNI plugins attach', () => {
  const chain = () => ({
    cniVersion: '1.0.0',
    name: 'fast',
    plugins: [
      { type: 'host-device', device: 'vf1', ipam: bench.ipam() },
      { type: 'tuning', capabilities: { mac: true }, mtu: 1400 },
    ],
  });
  const config = (): VfConfig => ({
    attach: 'cni',
    cni: chain(),
    interfaceName: 'net1',
    macAddress: '02:aa:00:00:00:01',
  });

  it('is reported as it is in the pod, and goes back as it was, with its address', async () => {
    bench.createVf(1);
    bench.prepare('c', [{ index: 1, config: config() }]);
    const pod = bench.newPod();
    const [state] = await bench.attach('c', pod);
    expect(state).toMatchObject({ interfaceName: 'net1', mtuBytes: 1400, ips: ['10.89.7.10/24'] });
    expect(state?.hardwareAddress).toBe('02:aa:00:00:00:01');
    const { attachments } = await bench.runner.cachedAttachments();
    expect(attachments).toMatchObject([
      {
        attachment: {
          deviceId: pciAddress(1),
          args: {
            K8S_POD_NAMESPACE: 'default',
            K8S_POD_NAME: 'app',
            K8S_POD_UID: 'pod-uid',
            K8S_POD_INFRA_CONTAINER_ID: 'sandbox1',
          },
        },
        result: { interfaces: [{ name: 'net1' }] },
      },
    ]);
    // Again, as after a restart in the middle: the plugins are not asked twice.
    expect(await bench.attach('c', pod)).toEqual([state]);
    expect(bench.leases()).toEqual(['10.89.7.10']);
    await bench.detach('c');
    expect(bench.leases()).toEqual([]);
    const [link] = JSON.parse(ip('-j', 'link', 'show', 'vf1'));
    expect(link).toMatchObject({ mtu: 1500, address: '02:00:00:00:00:01' });
    expect((await bench.runner.cachedAttachments()).attachments).toEqual([]);
  });

  it('is attached by them once more when a process in the pod has moved it to the host', async () => {
    bench.createVf(1);
    bench.prepare('c', [{ index: 1, config: config() }]);
    const pod = bench.newPod();
    const states = await bench.attach('c', pod);
    pod.exec('ip', 'link', 'set', 'net1', 'netns', String(process.pid));
    expect([inPod(pod), links().includes('net1')]).toEqual([[], true]);
    const again = await bench.attach('c', pod);
    // The plugins have released its address and leased another one.
    expect(again.map(({ ips: _, ...state }) => state)).toEqual(states.map(({ ips: _, ...state }) => state));
    expect([inPod(pod).length, bench.leases().length, bench.assured]).toEqual([1, 1, [pciAddress(1)]]);
    await bench.detach('c');
    expect([links().includes('vf1'), bench.leases()]).toEqual([true, []]);
  });
});

describe('a VF that another component attaches', () => {
  it('is reported with what that gave it, and left to it', async () => {
    bench.createVf(1);
    const pod = bench.newPod();
    bench.prepare('c', [{ index: 1, config: { attach: 'observe' } }]);
    await expect(bench.attach('c', pod)).rejects.toThrow(/no component has moved it into .*, and attach is "observe"/);
    ip('link', 'set', 'vf1', 'netns', pod.path);
    // As by CNI plugins: a link that is moved keeps its alias.
    pod.exec('ip', 'link', 'set', 'vf1', 'name', 'net1', 'up');
    pod.exec('ip', 'addr', 'add', '192.0.2.9/24', 'dev', 'net1');
    expect(await bench.attach('c', pod)).toMatchObject([{ interfaceName: 'net1', ips: ['192.0.2.9/24'] }]);
    await bench.detach('c');
    expect(inPod(pod)).toMatchObject([{ ifname: 'net1' }]);
  });

  it('is found and taken back from a sandbox in which it was left', async () => {
    bench.createVf(1);
    const pod = bench.newPod();
    mkdirSync('/var/run/netns', { recursive: true });
    using stack = new DisposableStack();
    const left = '/var/run/netns/netdra-left-behind';
    symlinkSync(pod.path, left);
    stack.defer(() => rmSync(left));
    bench.prepare('c', [{ index: 1, config: { attach: 'observe' } }]);
    ip('link', 'set', 'vf1', 'netns', pod.path);
    await bench.detachLost('c');
    expect(inPod(pod)).toEqual([]);
    expect(links()).toContain('vf1');
  });

  it('is stored as being there also when another one of its claim is not', async () => {
    const pod = bench.newPod();
    for (const index of [1, 2]) bench.createVf(index);
    bench.prepare(
      'c',
      [1, 2].map((index) => ({ index, config: { attach: 'observe' } })),
    );
    ip('link', 'set', 'vf1', 'netns', pod.path);
    await expect(bench.attach('c', pod)).rejects.toThrow(/0000-3b-02-2 .* no component has moved it/);
    const sandboxes = () => bench.devices('c').map(({ attachment }) => attachment?.sandboxId);
    expect(sandboxes()).toEqual(['sandbox1', undefined]);
    ip('link', 'set', 'vf2', 'netns', pod.path);
    pod.exec('ip', 'addr', 'add', '192.0.2.9/24', 'dev', 'vf2');
    expect(await bench.attach('c', pod)).toMatchObject([
      { interfaceName: 'vf1', ips: [] },
      { interfaceName: 'vf2', ips: ['192.0.2.9/24'] },
    ]);
    expect(sandboxes()).toEqual(['sandbox1', 'sandbox1']);
  });
});

describe('CniCleanUp', () => {
  it('takes back what no claim has any more, and leaves what is in use', async () => {
    for (const index of [1, 2]) bench.createVf(index);
    bench.prepare('kept', [{ index: 1, config: { interfaceName: 'net1', ipam: bench.ipam() } }]);
    bench.prepare('lost', [{ index: 2, config: { interfaceName: 'net1', ipam: bench.ipam() } }]);
    await bench.attach('kept', bench.newPod(), 'sandbox1');
    const pod = bench.newPod();
    await bench.attach('lost', pod, 'sandbox2');
    await bench.cleanUp.run();
    expect(bench.leases()).toHaveLength(2);
    // As if the driver had been ended in the middle of the release, and its pod with it.
    pod.unmount();
    bench.store.deleteClaim('lost');
    await bench.cleanUp.run();
    expect(bench.leases()).toEqual(['10.89.7.10']);
    const { attachments } = await bench.runner.cachedAttachments();
    expect(attachments.map(({ attachment }) => attachment.containerId)).toEqual(['sandbox1']);
    expect(bench.logger.messages('info')).toEqual(['CNI attachment of a sandbox that is gone deleted']);
  });
});
