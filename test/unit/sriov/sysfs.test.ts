import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sysfs } from '../../../src/sriov/sysfs.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { layFunction } from './pci-tree.ts';

const pfAddress = '0000:3b:00.0';
const above = 'pci0000:3a/0000:3a:00.0';

let dir: ReturnType<typeof tempDir>;
let sysfs: Sysfs;
beforeEach(() => {
  dir = tempDir();
  sysfs = new Sysfs(dir.path);
});
afterEach(() => dir[Symbol.dispose]());

const device = (pciAddress: string, ...path: string[]) => join(dir.path, 'bus/pci/devices', pciAddress, ...path);

describe('Sysfs.pfAddresses', () => {
  it('gives the network cards that can do SR-IOV, in order', async () => {
    layFunction(dir.path, { pciAddress: '0000:5e:00.1', totalVfs: 8 });
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8, vfs: [{ pciAddress: '0000:3b:02.0' }] });
    layFunction(dir.path, { pciAddress: '0000:00:1f.6' });
    layFunction(dir.path, { pciAddress: '0000:01:00.0', class: '0x010802', totalVfs: 4 });
    mkdirSync(device('not-an-address'), { recursive: true });
    expect(await sysfs.pfAddresses()).toEqual([pfAddress, '0000:5e:00.1']);
  });

  it('says which directory is missing', async () => {
    await expect(sysfs.pfAddresses()).rejects.toMatchObject({
      code: 'sysfs-unreadable',
      path: join(dir.path, 'bus/pci/devices'),
    });
  });
});

describe('Sysfs.pf and vfs', () => {
  it('reads a card with its VFs, kernel-bound, vfio-bound and unbound', async () => {
    layFunction(dir.path, {
      pciAddress: pfAddress,
      above,
      driver: 'i40e',
      numaNode: '1',
      iommuGroup: '40',
      interfaces: { ens1f0: undefined },
      totalVfs: 64,
      vfs: [
        { pciAddress: '0000:3b:02.0', driver: 'iavf', interfaces: { ens1f0v0: undefined }, iommuGroup: '41' },
        { pciAddress: '0000:3b:02.1', driver: 'vfio-pci', numaNode: '-1' },
        { pciAddress: '0000:3b:02.2', numaNode: undefined },
      ],
    });
    const pf = await sysfs.pf(pfAddress);
    expect(pf).toEqual({
      pciAddress: pfAddress,
      vendor: '8086',
      device: '1572',
      driver: 'i40e',
      interfaceName: 'ens1f0',
      hardwareAddress: '02:00:00:00:00:0a',
      mtuBytes: 1500,
      numaNode: 1,
      pcieRoot: 'pci0000:3a',
      iommuGroup: '40',
      totalVfs: 64,
      vfs: [
        { pciAddress: '0000:3b:02.0', vfIndex: 0 },
        { pciAddress: '0000:3b:02.1', vfIndex: 1 },
        { pciAddress: '0000:3b:02.2', vfIndex: 2 },
      ],
    });
    const common = { pfAddress, pfName: 'ens1f0', vendor: '8086', device: '154c', pcieRoot: 'pci0000:3a' };
    expect(await sysfs.vfs(pf)).toEqual([
      {
        ...common,
        pciAddress: '0000:3b:02.0',
        vfIndex: 0,
        driver: 'iavf',
        interfaceName: 'ens1f0v0',
        hardwareAddress: '02:00:00:00:00:0a',
        mtuBytes: 1500,
        numaNode: 0,
        iommuGroup: '41',
      },
      { ...common, pciAddress: '0000:3b:02.1', vfIndex: 1, driver: 'vfio-pci' },
      { ...common, pciAddress: '0000:3b:02.2', vfIndex: 2 },
    ]);
  });

  it('orders VFs by number, not by text', async () => {
    const vfs = Array.from({ length: 12 }, (_, i) => ({ pciAddress: `0000:3b:0${2 + (i >> 3)}.${i & 7}` }));
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 12, vfs });
    const pf = await sysfs.pf(pfAddress);
    expect(pf.vfs.map(({ vfIndex }) => vfIndex)).toEqual(vfs.map((_, i) => i));
  });

  it('takes the uplink, not the representors that a switchdev driver lists beside it', async () => {
    const interfaces = { eth0: 'pf0vf0', eth1: 'c1pf0vf1', ens1f0np0: 'p0', eth2: 'pf0sf3' };
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8, interfaces });
    expect((await sysfs.pf(pfAddress)).interfaceName).toBe('ens1f0np0');
  });

  it('has no interface for a card that is bound to vfio-pci or whose interface is elsewhere', async () => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8, interfaces: {} });
    expect(await sysfs.pf(pfAddress)).not.toHaveProperty('interfaceName');
  });

  it.each([
    ['vendor', '8086'],
    ['vendor', ''],
    ['device', '0x15'],
    ['numa_node', 'none'],
    ['numa_node', '-2'],
    ['sriov_totalvfs', '0x40'],
  ])('never takes %s = %j for a number', async (name, text) => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    writeFileSync(device(pfAddress, name), `${text}\n`);
    await expect(sysfs.pf(pfAddress)).rejects.toMatchObject({
      code: 'sysfs-malformed',
      path: device(pfAddress, name),
      message: expect.stringContaining(JSON.stringify(text)),
    });
  });

  it('says which file cannot be read', async () => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    rmSync(device(pfAddress, 'vendor'));
    mkdirSync(device(pfAddress, 'vendor'));
    await expect(sysfs.pf(pfAddress)).rejects.toMatchObject({
      code: 'sysfs-unreadable',
      path: device(pfAddress, 'vendor'),
      retriable: false,
      cause: expect.objectContaining({ code: 'EISDIR' }),
    });
  });

  it('can be tried again when a VF goes away meanwhile', async () => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    symlinkSync('../0000:3b:02.0', device(pfAddress, 'virtfn0'));
    const pf = await sysfs.pf(pfAddress);
    await expect(sysfs.vfs(pf)).rejects.toMatchObject({ code: 'sysfs-unreadable', retriable: true });
  });
});
