import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Link, Route, VfInfo } from '../../../src/netlink/index.ts';
import { Inventory } from '../../../src/sriov/inventory.ts';
import type { InventoryPolicy } from '../../../src/sriov/inventory-policy.ts';
import { Sysfs } from '../../../src/sriov/sysfs.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { layFunction } from './pci-tree.ts';

const pfA = '0000:3b:00.0';
const pfB = '0000:5e:00.0';
const a0 = '0000:3b:02.0';
const a1 = '0000:3b:02.1';
const b0 = '0000:5e:02.0';

const link = (index: number, name: string, more: Partial<Link> = {}): Link => ({
  index,
  name,
  hardwareAddress: `02:00:00:00:00:0${index}`,
  mtuBytes: 1500,
  up: true,
  operState: 'up',
  carrier: true,
  altNames: [],
  ...more,
});
const defaultRoute = (...indices: number[]): Route => ({
  family: 'ipv4',
  destination: '0.0.0.0/0',
  nextHops: indices.map((index) => ({ index, gateway: '192.0.2.1' })),
  table: 254,
  type: 'unicast',
});

/** Two cards: `ensA` (links 2, 3, 4 with its VFs) and `ensB` (5, 6). */
const cards = [
  link(2, 'ensA', { parentDevice: pfA }),
  link(3, 'ensAv0', { parentDevice: a0 }),
  link(4, 'ensAv1', { parentDevice: a1 }),
  link(5, 'ensB', { parentDevice: pfB }),
  link(6, 'ensBv0', { parentDevice: b0 }),
];

let dir: ReturnType<typeof tempDir>;
let network: { links: Link[]; routes: Route[]; vfInfos: Record<number, VfInfo[]> };
beforeEach(() => {
  dir = tempDir();
  const vf = (pciAddress: string, name: string) => ({ pciAddress, driver: 'iavf', interfaces: { [name]: undefined } });
  layFunction(dir.path, {
    pciAddress: pfA,
    interfaces: { ensA: undefined },
    totalVfs: 8,
    vfs: [vf(a0, 'ensAv0'), vf(a1, 'ensAv1')],
  });
  layFunction(dir.path, { pciAddress: pfB, interfaces: { ensB: undefined }, totalVfs: 8, vfs: [vf(b0, 'ensBv0')] });
  network = { links: [...cards], routes: [], vfInfos: {} };
});
afterEach(() => dir[Symbol.dispose]());

function inventory(policy: InventoryPolicy = {}): Inventory {
  const connection = {
    links: async () => network.links,
    routes: async () => network.routes,
    vfInfos: async (index: number) => network.vfInfos[index] ?? [],
  };
  return new Inventory({ sysfs: new Sysfs(dir.path), connection, simulated: false, policy });
}
async function offered(policy?: InventoryPolicy): Promise<string[]> {
  return (await inventory(policy).scan()).devices.map(({ pciAddress }) => pciAddress);
}
const change = (index: number, more: Partial<Link>) => {
  network.links = network.links.map((each) => (each.index === index ? { ...each, ...more } : each));
};

describe('Inventory', () => {
  it('offers every VF with its address and MTU, in order', async () => {
    change(3, { mtuBytes: 9000 });
    const { devices, excluded, problems } = await inventory().scan();
    expect(devices.map(({ name, hardwareAddress, mtuBytes }) => [name, hardwareAddress, mtuBytes])).toEqual([
      ['0000-3b-02-0', '02:00:00:00:00:03', 9000],
      ['0000-3b-02-1', '02:00:00:00:00:04', 1500],
      ['0000-5e-02-0', '02:00:00:00:00:06', 1500],
    ]);
    expect([excluded, problems]).toEqual([[], []]);
  });

  it('never offers the VF that carries the default route, in whatever table', async () => {
    network.routes = [{ ...defaultRoute(3), table: 100 }];
    const { devices, excluded } = await inventory().scan();
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual([a1, b0]);
    expect(excluded).toEqual([
      { pciAddress: a0, pfAddress: pfA, reason: 'carries-default-route', interfaceName: 'ensAv0' },
    ]);
  });

  it('looks through bonds, VLANs and several ways out', async () => {
    network.links.push(link(10, 'bond0', { kind: 'bond' }), link(11, 'bond0.7', { kind: 'vlan', lower: 10 }));
    change(4, { master: 10 });
    network.routes = [defaultRoute(11, 6)];
    const { excluded } = await inventory().scan();
    expect(excluded.map(({ pciAddress, reason }) => [pciAddress, reason])).toEqual([
      [a1, 'carries-default-route'],
      [b0, 'carries-default-route'],
    ]);
  });

  it('does not take a link number of another namespace for one of its own', async () => {
    network.links.push(link(10, 'macvlan0', { kind: 'macvlan', lower: 3, lowerNetnsId: 0 }));
    network.routes = [defaultRoute(10)];
    expect(await offered()).toEqual([a0, a1, b0]);
  });

  it('ends on links that are on top of each other', async () => {
    network.links.push(link(10, 'x', { lower: 11 }), link(11, 'y', { lower: 10, master: 10 }));
    network.routes = [defaultRoute(10)];
    expect(await offered()).toEqual([a0, a1, b0]);
  });

  it('does not mind routes that lead nowhere', async () => {
    network.routes = [{ ...defaultRoute(), type: 'unreachable', nextHops: [{}] }];
    expect(await offered()).toEqual([a0, a1, b0]);
  });

  it('offers no VF that is a port of a bridge', async () => {
    network.links.push(link(10, 'br0', { kind: 'bridge' }));
    change(3, { master: 10 });
    expect((await inventory().scan()).excluded).toEqual([
      { pciAddress: a0, pfAddress: pfA, reason: 'enslaved', interfaceName: 'ensAv0' },
    ]);
  });

  it('offers VFs of a card that the node uses only when it is told to', async () => {
    network.routes = [defaultRoute(2)];
    const { excluded } = await inventory().scan();
    expect(excluded.map(({ pciAddress, reason, interfaceName }) => [pciAddress, reason, interfaceName])).toEqual([
      [a0, 'pf-carries-default-route', 'ensA'],
      [a1, 'pf-carries-default-route', 'ensA'],
    ]);
    expect(await offered({ pfs: [{ select: {}, allowInUse: true }] })).toEqual([a0, a1, b0]);
    network.routes.push(defaultRoute(3));
    expect(await offered({ pfs: [{ select: {}, allowInUse: true }] })).toEqual([a1, b0]);
  });

  it('keeps to the PFs and VFs of the policy', async () => {
    expect(await offered({ pfs: [{ select: { name: 'ensB' } }] })).toEqual([b0]);
    expect(await offered({ pfs: [{ select: { pciAddress: pfA } }] })).toEqual([a0, a1]);
    expect(await offered({ pfs: [{ select: { name: 'ensA', pciAddress: pfB } }] })).toEqual([]);
    expect(await offered({ pfs: [{ select: { pciAddress: pfA }, vfs: '1-6' }] })).toEqual([a1]);
    expect(await offered({ pfs: [{ select: { name: 'ensA' }, vfs: '5,0' }, { select: {} }] })).toEqual([a0, b0]);
    expect((await inventory({ pfs: [] }).scan()).excluded.map(({ reason }) => reason)).toEqual(
      Array(3).fill('not-selected'),
    );
  });

  it('follows a policy that was replaced', async () => {
    const watched = inventory();
    expect((await watched.scan()).devices).toHaveLength(3);
    watched.policy = { pfs: [{ select: { name: 'ensB' } }] };
    expect((await watched.scan()).devices.map(({ pciAddress }) => pciAddress)).toEqual([b0]);
  });

  it('switches VFs on where none is, and leaves other numbers alone', async () => {
    const file = (pf: string) => join(dir.path, 'bus/pci/devices', pf, 'sriov_numvfs');
    const pfC = '0000:af:00.0';
    layFunction(dir.path, { pciAddress: pfC, interfaces: { ensC: undefined }, totalVfs: 8, vfs: [] });
    await inventory({ pfs: [{ select: {}, numVfs: 4 }] }).scan();
    expect(readFileSync(file(pfC), 'utf8').trim()).toBe('4');
    // Nothing was written where VFs are: the tree has no such file of its own.
    expect(existsSync(file(pfA))).toBe(false);
  });

  it('keeps the address and MTU of a VF that is in a pod', async () => {
    const watched = inventory();
    const before = await watched.scan();
    network.links = network.links.filter(({ index }) => index !== 3);
    expect((await watched.scan()).devices).toEqual(before.devices);
  });

  it('has the address of a VF without interface from its PF', async () => {
    layFunction(dir.path, {
      pciAddress: '0000:af:00.0',
      interfaces: { ensC: undefined },
      totalVfs: 8,
      vfs: [
        { pciAddress: '0000:af:02.0', driver: 'vfio-pci' },
        { pciAddress: '0000:af:02.1', driver: 'vfio-pci' },
      ],
    });
    network.links.push(link(8, 'ensC', { parentDevice: '0000:af:00.0' }));
    network.vfInfos = { 8: [{ vfIndex: 0, hardwareAddress: '02:00:00:00:00:cc' }, { vfIndex: 1 }] };
    const devices = (await inventory().scan()).devices.filter(({ pfName }) => pfName === 'ensC');
    expect(devices.map(({ hardwareAddress }) => hardwareAddress)).toEqual(['02:00:00:00:00:cc', undefined]);
  });

  it('finds links by name on kernels that do not tell their bus address', async () => {
    network.links = network.links.map(({ parentDevice: _, ...rest }) => rest);
    network.routes = [defaultRoute(3)];
    expect(await offered()).toEqual([a1, b0]);
  });

  it('goes on with the other cards when one cannot be read', async () => {
    const path = join(dir.path, 'bus/pci/devices', pfA, 'vendor');
    writeFileSync(path, 'garbage');
    const { devices, problems } = await inventory().scan();
    expect(devices.map(({ pciAddress }) => pciAddress)).toEqual([b0]);
    expect(problems).toMatchObject([{ code: 'sysfs-malformed', path }]);
  });
});
