import { readdirSync, readFileSync, readlinkSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseHardwareAddress } from '../../../../src/node/netlink/checks.ts';
import { assertInterfaceName } from '../../../../src/node/netlink/index.ts';
import { writeFileTree } from '../../../../src/node/sriov/file-tree.ts';
import { isPciAddress } from '../../../../src/node/sriov/pci-address.ts';
import { SimulatedControl } from '../../../../src/node/sriov/simulated-control.ts';
import { planSimulation, simulatedSysfs } from '../../../../src/node/sriov/simulated-layout.ts';
import { Sysfs } from '../../../../src/node/sriov/sysfs.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

let dir: ReturnType<typeof tempDir>;
beforeEach(() => {
  dir = tempDir();
});
afterEach(() => dir[Symbol.dispose]());

const nodeName = 'node-1';

describe('planSimulation', () => {
  it('gives every function a unique, valid name, PCI address and MAC', () =>
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 16 }), fc.integer({ min: 1, max: 240 }), (pfs, vfsPerPf) => {
        const plan = planSimulation({ pfs, vfsPerPf, namePrefix: 'nsim', nodeName });
        const vfs = plan.flatMap((pf) => pf.vfs);
        const links = [
          ...plan,
          ...vfs,
          ...vfs.map(({ peerName: name, peerAddress: hardwareAddress }) => ({ name, hardwareAddress })),
        ];
        for (const { name, hardwareAddress } of links) {
          assertInterfaceName(name);
          expect(parseHardwareAddress(hardwareAddress)[0]! & 2).toBe(2);
        }
        expect(new Set(links.map(({ name }) => name)).size).toBe(links.length);
        expect(new Set(links.map(({ hardwareAddress }) => hardwareAddress)).size).toBe(links.length);
        const addresses = [...plan, ...vfs].map(({ pciAddress }) => pciAddress);
        expect(addresses.every(isPciAddress)).toBe(true);
        expect(new Set(addresses).size).toBe(addresses.length);
      }),
      { numRuns: 20 },
    ));

  it('is deterministic, and a larger simulation contains a smaller one', () => {
    const small = planSimulation({ pfs: 1, vfsPerPf: 2, namePrefix: 'nsim', nodeName });
    const large = planSimulation({ pfs: 2, vfsPerPf: 4, namePrefix: 'nsim', nodeName });
    expect(large[0]!.vfs.slice(0, 2)).toEqual(small[0]!.vfs);
  });

  it('gives simulations with different prefixes different PCI addresses, by which links are found', () => {
    const addresses = ['nsim', 'bench', 'other'].flatMap((namePrefix) =>
      planSimulation({ pfs: 1, vfsPerPf: 2, namePrefix, nodeName }).flatMap((pf) => [pf, ...pf.vfs]),
    );
    expect(new Set(addresses.map(({ alias }) => alias)).size).toBe(9);
    expect(addresses[0]).toMatchObject({ pciAddress: 'fe00:00:00.0' });
    expect(addresses.every(({ pciAddress }) => isPciAddress(pciAddress))).toBe(true);
  });

  it('gives VFs with the same name on two nodes different MACs', () => {
    const plan = { pfs: 2, vfsPerPf: 8, namePrefix: 'nsim' };
    const vfs = ['node-1', 'node-2'].flatMap((node) =>
      planSimulation({ ...plan, nodeName: node }).flatMap((pf) => pf.vfs),
    );
    expect(new Set(vfs.map(({ hardwareAddress }) => hardwareAddress)).size).toBe(32);
  });

  it.each([
    { pfs: 0 },
    { pfs: 17 },
    { vfsPerPf: 0 },
    { vfsPerPf: 241 },
    { vfsPerPf: 1.5 },
    { namePrefix: '' },
    { namePrefix: 'sim1' },
    { namePrefix: 'Sim' },
    { namePrefix: 'a/b' },
    { namePrefix: 'a-very-long-one' },
  ])('rejects %j', (wrong) =>
    expect(() => planSimulation({ pfs: 1, vfsPerPf: 8, namePrefix: 'nsim', nodeName, ...wrong })).toThrow(
      expect.objectContaining({ code: 'simulation-invalid', hint: expect.any(String) }),
    ),
  );
});

it('simulatedSysfs can be read like the sysfs of real cards', async () => {
  const plan = planSimulation({ pfs: 2, vfsPerPf: 3, namePrefix: 'nsim', nodeName });
  await writeFileTree(dir.path, simulatedSysfs(plan));
  const sysfs = new Sysfs(dir.path);
  expect((await sysfs.networkFunctions()).pfs).toEqual(plan.map(({ pciAddress }) => pciAddress));
  const pf = await sysfs.pf(plan[1]!.pciAddress);
  expect(pf).toMatchObject({ totalVfs: 240, driver: 'veth', pcieRoot: 'pcife00:01' });
  expect(await sysfs.interfaces(pf.pciAddress)).toMatchObject([{ name: 'nsim1' }]);
  expect(await sysfs.port(pf.pciAddress, 'nsim1')).toEqual({ linkType: 'ethernet', linkSpeedMbps: 10_000 });
  expect(pf).not.toHaveProperty('numaNode');
  const onNodes = planSimulation({ pfs: 3, vfsPerPf: 3, namePrefix: 'nsim', nodeName, numaNodes: [0, 1] });
  await writeFileTree(dir.path, simulatedSysfs(onNodes));
  const placed = await Promise.all(onNodes.map(({ pciAddress }) => new Sysfs(dir.path).pf(pciAddress)));
  expect(placed.map(({ numaNode }) => numaNode)).toEqual([0, 1, 1]);
  const vfs = await Promise.all(pf.vfs.map((entry) => sysfs.vf(pf, entry)));
  expect(vfs).toMatchObject(
    plan[1]!.vfs.map(({ pciAddress, vfIndex }) => ({
      pciAddress,
      vfIndex,
      pfAddress: pf.pciAddress,
      driver: 'veth',
    })),
  );
  const interfaces = await Promise.all(vfs.map(({ pciAddress }) => sysfs.interfaces(pciAddress)));
  expect(interfaces).toEqual(
    plan[1]!.vfs.map(({ name, hardwareAddress }) => [{ name, hardwareAddress, mtuBytes: 1500 }]),
  );
  const vfDir = join(dir.path, 'bus/pci/devices', plan[1]!.vfs[2]!.pciAddress);
  expect(readlinkSync(join(vfDir, 'physfn'))).toBe(`../${plan[1]!.pciAddress}`);
  expect(statSync(join(vfDir, 'physfn/virtfn2/physfn')).isDirectory()).toBe(true);
  expect(statSync(join(vfDir, 'driver')).isDirectory()).toBe(true);
  expect(readFileSync(join(vfDir, 'physfn/sriov_numvfs'), 'utf8')).toBe('3\n');
});

describe('writeFileTree', () => {
  const tree = (entries: Record<string, string | { target: string }>) =>
    new Map(
      Object.entries(entries).map(([path, entry]) => [path, typeof entry === 'string' ? { text: entry } : entry]),
    );

  it('makes the directory contain exactly the given tree', async () => {
    await writeFileTree(dir.path, tree({ 'a/b': '1', 'a/c': { target: 'b' }, 'x/y/z': '2' }));
    writeFileSync(join(dir.path, 'a/stray'), '');
    await writeFileTree(dir.path, tree({ 'a/b': '3', 'a/c': { target: '../d' }, d: '4' }));
    expect(readdirSync(dir.path, { recursive: true }).sort()).toEqual(['a', 'a/b', 'a/c', 'd']);
    expect(readFileSync(join(dir.path, 'a/c'), 'utf8')).toBe('4');
    expect(readFileSync(join(dir.path, 'a/b'), 'utf8')).toBe('3');
  });

  it('does not rewrite correct files', async () => {
    const same = tree({ 'a/b': '1', 'a/c': { target: 'b' } });
    await writeFileTree(dir.path, same);
    const before = statSync(join(dir.path, 'a/b')).ino;
    await writeFileTree(dir.path, same);
    expect(statSync(join(dir.path, 'a/b')).ino).toBe(before);
  });

  it('turns a symlink into a file and a file into a symlink', async () => {
    symlinkSync('nowhere', join(dir.path, 'a'));
    writeFileSync(join(dir.path, 'b'), 'text');
    await writeFileTree(dir.path, tree({ a: 'text', b: { target: 'a' } }));
    expect(readlinkSync(join(dir.path, 'b'))).toBe('a');
    expect(readFileSync(join(dir.path, 'b'), 'utf8')).toBe('text');
  });
});

// What a claim's VF was before decides what it is offered as by a driver that starts while it is in a pod.
it('SimulatedControl returns the kernel driver that sysfs shows for the device', async () => {
  writeFileTree(dir.path, simulatedSysfs(planSimulation({ pfs: 1, vfsPerPf: 1, namePrefix: 'nsim', nodeName })));
  const bound = basename(readlinkSync(join(dir.path, 'bus/pci/devices/fe00:00:02.0/driver')));
  expect(await new SimulatedControl().snapshot()).toEqual({ driver: bound, vf: {} });
});
