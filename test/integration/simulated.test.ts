import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Inventory } from '../../src/node/inventory/index.ts';
import { findVf, type Link, moveLink, type NetnsHandle, RtnlConnection } from '../../src/node/netlink/index.ts';
import { formatSimulatedAlias, SimulatedNic } from '../../src/node/sriov/index.ts';
import { TestNetns } from '../doubles/netns.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const first = 'fe00:00:02.0';
const second = 'fe00:00:02.1';

let stack: DisposableStack;
let host: TestNetns;
let hostHandle: NetnsHandle;
let connection: RtnlConnection;
let dir: string;
beforeEach(() => {
  stack = new DisposableStack();
  host = stack.use(new TestNetns('host'));
  hostHandle = stack.use(host.open());
  connection = stack.use(RtnlConnection.open(hostHandle));
  dir = join(stack.use(tempDir()).path, 'sys');
});
afterEach(() => stack.dispose());

const createNic = (plan: { pfs?: number; vfsPerPf?: number; namePrefix?: string } = {}) =>
  new SimulatedNic({ pfs: 1, vfsPerPf: 4, namePrefix: 'nsim', nodeName: 'node-1', dir, connection, ...plan });

async function startNic(plan?: { pfs?: number; vfsPerPf?: number }): Promise<SimulatedNic> {
  const nic = createNic(plan);
  await nic.start();
  return nic;
}

const vfOf = (links: Link[], pciAddress: string) => findVf(links, { alias: formatSimulatedAlias(pciAddress) });
const names = (links: Link[]) => links.map(({ name }) => name).sort();

/** A pod's namespace with a VF in it. */
async function putIntoPod(pciAddress: string, name = 'net1') {
  const pod = new TestNetns('pod');
  stack.use(pod);
  const handle = pod.open();
  const inPod = RtnlConnection.open(handle);
  const vf = vfOf(await connection.links(), pciAddress)!;
  const link = await moveLink(connection, vf, { netns: handle, connection: inPod }, { name, up: true });
  const close = () => {
    inPod[Symbol.dispose]();
    handle[Symbol.dispose]();
  };
  stack.defer(close);
  return { pod, handle, inPod, link, vf, close };
}

/** Without what the kernel works out by itself a moment after a change. */
const lasting = (links: Link[]) => links.map(({ carrier: _carrier, ...rest }) => rest);

describe('SimulatedNic.start', () => {
  it('does not touch a VF that is in a pod', async () => {
    await startNic();
    const { inPod, link } = await putIntoPod(first);
    const before = await connection.links();
    await startNic();
    expect(lasting(await connection.links())).toEqual(lasting(before));
    expect(lasting([vfOf(await inPod.links(), first)!])).toEqual(lasting([link]));
  });

  it('distinguishes a link of the host from a VF that has the same index in its pod', async () => {
    const nic = await startNic();
    const pod = stack.use(new TestNetns('pod'));
    const handle = stack.use(pod.open());
    const inPod = stack.use(RtnlConnection.open(handle));
    const vf = vfOf(await connection.links(), first)!;
    // The VF's own index is taken there, so it gets the next, which is another link's on the host.
    for (let index = 1; index < vf.index; index++) await inPod.createBridge({ name: `br${index}` });
    const link = await moveLink(connection, vf, { netns: handle, connection: inPod }, { name: 'net1' });
    const before = await connection.links();
    expect(before.map(({ index }) => index)).toContain(link.index);
    await startNic();
    await nic.ensureVf(first);
    expect(lasting(await connection.links())).toEqual(lasting(before));
  });

  it('restores links that another process deleted or took down', async () => {
    await startNic();
    const at = async (name: string) => (await connection.link({ name }))!.index;
    await connection.deleteLink(await at('nsim0v2'));
    await connection.setLink(await at('nsim0p1'), { master: 0, up: false });
    await connection.setLink(await at('nsim0v1'), { alias: '' });
    await connection.deleteLink(await at('nsim0'));
    await startNic();
    const links = await connection.links();
    const bridge = links.find(({ name }) => name === 'nsim0')!;
    const peers = links.filter(({ name }) => name.startsWith('nsim0p'));
    expect(peers.map(({ master, up }) => ({ master, up }))).toEqual(Array(4).fill({ master: bridge.index, up: true }));
    expect(vfOf(links, second)?.name).toBe('nsim0v1');
    expect(vfOf(links, 'fe00:00:02.2')?.name).toBe('nsim0v2');
  });

  it('removes surplus VFs of an earlier, larger simulation, except VFs in pods', async () => {
    await startNic({ pfs: 3, vfsPerPf: 3 });
    const { inPod } = await putIntoPod('fe00:01:02.1');
    const nic = await startNic({ pfs: 1, vfsPerPf: 2 });
    expect(names(await connection.links())).toEqual([
      'lo',
      'nsim0',
      'nsim0p0',
      'nsim0p1',
      'nsim0v0',
      'nsim0v1',
      'nsim1',
      'nsim1p1',
    ]);
    expect(vfOf(await inPod.links(), 'fe00:01:02.1')).toBeDefined();
    expect((await nic.sysfs.networkFunctions()).pfs).toEqual(['fe00:00:00.0']);
  });

  it.each(['nsim0', 'nsim0p0', 'nsim0v0'])('does not take over a foreign interface %s', async (name) => {
    await connection.createVeth({ name, peer: { name: 'other' } });
    await expect(startNic()).rejects.toMatchObject({ code: 'simulation-name-taken', device: name });
    expect((await connection.link({ name }))?.master).toBeUndefined();
  });
});

describe('SimulatedNic.ensureVf', () => {
  it('recreates a veth pair with the same MAC after it was deleted with its pod', async () => {
    const nic = await startNic();
    const { pod, close, vf } = await putIntoPod(first);
    close();
    pod.unmount();
    // At once, as on release: the kernel may still be at work on the namespace.
    await nic.ensureVf(first);
    const again = vfOf(await connection.links(), first);
    expect(again).toMatchObject({ name: 'nsim0v0', hardwareAddress: vf.hardwareAddress });
    const [peer] = host.ip('link', 'show', 'dev', 'nsim0p0');
    expect(peer).toMatchObject({ master: 'nsim0' });
  });

  it('does not take a VF out of a living pod', async () => {
    const nic = await startNic();
    const { inPod, link } = await putIntoPod(first);
    await nic.ensureVf(first);
    expect(lasting([vfOf(await inPod.links(), first)!])).toEqual(lasting([link]));
    expect(vfOf(await connection.links(), first)).toBeUndefined();
  });

  it('renames a VF that returned under its name in the pod', async () => {
    const nic = await startNic();
    const { inPod, link } = await putIntoPod(first, 'fast0');
    await inPod.setLink(link.index, { netns: hostHandle, up: true });
    await nic.ensureVf(first);
    expect(vfOf(await connection.links(), first)?.name).toBe('nsim0v0');
  });

  it('changes nothing on a VF that is complete', async () => {
    const nic = await startNic();
    const before = await connection.links();
    await nic.ensureVf(second);
    expect(lasting(await connection.links())).toEqual(lasting(before));
  });

  it('ignores foreign VFs', async () => {
    const nic = await startNic();
    await expect(nic.ensureVf('0000:3b:02.0')).rejects.toMatchObject({ code: 'vf-missing', device: '0000:3b:02.0' });
  });
});

it('simulated VFs are no longer offered when a default route uses one of them', async () => {
  const nic = await startNic();
  const { index } = vfOf(await connection.links(), second)!;
  await connection.setLink(index, { up: true });
  await connection.addAddress(index, '192.0.2.2/24');
  await connection.addRoute({ destination: '0.0.0.0/0', gateway: '192.0.2.1', index });
  const { devices, excluded } = await new Inventory({
    sysfs: nic.sysfs,
    connection,
    simulated: true,
    policy: () => ({}),
    vfSwitch: { ensure: async ({ vfs }) => ({ vfs }) },
  }).scan();
  expect(devices.map(({ pciAddress }) => pciAddress)).not.toContain(second);
  expect(excluded).toMatchObject([{ pciAddress: second, reason: 'carries-default-route', interfaceName: 'nsim0v1' }]);
});
