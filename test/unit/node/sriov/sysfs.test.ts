import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sysfs } from '../../../../src/node/sriov/sysfs.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
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

describe('Sysfs.networkFunctions', () => {
  it('lists SR-IOV cards in order, apart from other cards, VFs and other devices', async () => {
    layFunction(dir.path, { pciAddress: '0000:5e:00.1', totalVfs: 8 });
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8, vfs: [{ pciAddress: '0000:3b:02.0' }] });
    layFunction(dir.path, { pciAddress: '0000:00:1f.6' });
    layFunction(dir.path, { pciAddress: '0000:81:00.0', class: '0x020700', totalVfs: 4 });
    layFunction(dir.path, { pciAddress: '0000:01:00.0', class: '0x010802', totalVfs: 4 });
    layFunction(dir.path, { pciAddress: '0000:02:00.0', class: 'no class' });
    mkdirSync(device('not-an-address'), { recursive: true });
    const pfs = [pfAddress, '0000:5e:00.1', '0000:81:00.0'];
    expect(await sysfs.networkFunctions()).toEqual({ pfs, others: ['0000:00:1f.6'] });
    expect((await sysfs.networkFunctions()).pfs).toEqual(pfs);
  });

  it('finds cards in PCI domains of more than four digits, with their root complex', async () => {
    const pciAddress = '10000:e1:00.0';
    layFunction(dir.path, { pciAddress, above: 'pci10000:e0/10000:e0:06.0', totalVfs: 8, rdmaDevices: ['mlx5_0'] });
    expect((await sysfs.networkFunctions()).pfs).toEqual([pciAddress]);
    expect(await sysfs.pf(pciAddress)).toMatchObject({ pciAddress, pcieRoot: 'pci10000:e0' });
    expect([...(await sysfs.rdmaDevices()).keys()]).toEqual([pciAddress]);
  });

  it('reads a function again if it vanished during the scan, because another function may have replaced it', async () => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    rmSync(device(pfAddress, 'class'));
    const report = await sysfs.networkFunctions();
    expect(report).toMatchObject({ pfs: [], others: [], problems: [{ code: 'sysfs-unreadable', retriable: true }] });
    writeFileSync(device(pfAddress, 'class'), '0x020000');
    expect((await sysfs.networkFunctions()).pfs).toEqual([pfAddress]);
  });

  it('reads a function without a PF link again, because that link can appear a moment later', async () => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    layFunction(dir.path, { pciAddress: '0000:3b:02.0' });
    expect((await sysfs.networkFunctions()).others).toEqual(['0000:3b:02.0']);
    symlinkSync(`../${pfAddress}`, device('0000:3b:02.0', 'physfn'));
    expect((await sysfs.networkFunctions()).others).toEqual([]);
  });

  it('names a missing directory', async () => {
    await expect(sysfs.networkFunctions()).rejects.toMatchObject({
      code: 'sysfs-unreadable',
      path: join(dir.path, 'bus/pci/devices'),
    });
  });
});

describe('Sysfs.pf and vf', () => {
  it('orders VFs by number, not as text', async () => {
    const vfs = Array.from({ length: 12 }, (_, i) => ({ pciAddress: `0000:3b:0${2 + (i >> 3)}.${i & 7}` }));
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 12, vfs });
    const pf = await sysfs.pf(pfAddress);
    expect(pf.vfs.map(({ vfIndex }) => vfIndex)).toEqual(vfs.map((_, i) => i));
  });

  it.each([
    ['vendor', '8086'],
    ['vendor', ''],
    ['device', '0x15'],
    ['numa_node', 'none'],
    ['numa_node', '-2'],
    ['sriov_totalvfs', '0x40'],
  ])('never treats %s = %j as a number', async (name, text) => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    writeFileSync(device(pfAddress, name), `${text}\n`);
    await expect(sysfs.pf(pfAddress)).rejects.toMatchObject({
      code: 'sysfs-malformed',
      path: device(pfAddress, name),
      message: expect.stringContaining(JSON.stringify(text)),
    });
  });

  it('names an unreadable file', async () => {
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

  it('throws an error that allows a retry if a VF is removed meanwhile', async () => {
    layFunction(dir.path, { pciAddress: pfAddress, totalVfs: 8 });
    symlinkSync('../0000:3b:02.0', device(pfAddress, 'virtfn0'));
    const pf = await sysfs.pf(pfAddress);
    await expect(sysfs.vf(pf, pf.vfs[0]!)).rejects.toMatchObject({ code: 'sysfs-unreadable', retriable: true });
  });
});

describe('Sysfs on repeated reads', () => {
  const vfAddress = '0000:3b:02.0';
  const lay = (iommuGroup: string, vendor = '0x8086') =>
    layFunction(dir.path, { pciAddress: vfAddress, above, vendor, driver: 'iavf', iommuGroup });
  const setDriver = (name: string | undefined) => {
    rmSync(device(vfAddress, 'driver'), { force: true });
    if (name !== undefined) symlinkSync(`../../../../bus/pci/drivers/${name}`, device(vfAddress, 'driver'));
  };

  it('reads constants only once', async () => {
    lay('41');
    const first = await sysfs.pciFunction(vfAddress);
    writeFileSync(device(vfAddress, 'vendor'), 'not read');
    expect(await sysfs.pciFunction(vfAddress)).toEqual(first);
    await expect(new Sysfs(dir.path).pciFunction(vfAddress)).rejects.toMatchObject({ code: 'sysfs-malformed' });
  });

  it('sees a changed driver at once', async () => {
    lay('41');
    const drivers = [];
    for (const name of ['vfio-pci', undefined, 'iavf']) {
      setDriver(name);
      drivers.push((await sysfs.pciFunction(vfAddress)).driver);
    }
    expect(drivers).toEqual(['vfio-pci', undefined, 'iavf']);
  });

  it('sees an IOMMU group that exists only while vfio has the VF, as on machines without an IOMMU', async () => {
    layFunction(dir.path, { pciAddress: vfAddress, above, driver: 'iavf' });
    expect(await sysfs.pciFunction(vfAddress)).not.toHaveProperty('iommuGroup');
    setDriver('vfio-pci');
    mkdirSync(join(dir.path, 'kernel/iommu_groups/0/devices'), { recursive: true });
    symlinkSync('../../../../kernel/iommu_groups/0', device(vfAddress, 'iommu_group'));
    expect(await sysfs.pciFunction(vfAddress)).toMatchObject({ iommuGroup: '0' });
    setDriver('iavf');
    rmSync(device(vfAddress, 'iommu_group'));
    expect(await sysfs.pciFunction(vfAddress)).not.toHaveProperty('iommuGroup');
  });

  it('notices a function that was recreated at the same address between two reads', async () => {
    lay('41');
    expect(await sysfs.pciFunction(vfAddress)).toMatchObject({ vendor: '8086', iommuGroup: '41' });
    rmSync(join(dir.path, 'devices', above, vfAddress), { recursive: true });
    rmSync(device(vfAddress));
    lay('57', '0x15b3');
    expect(await sysfs.pciFunction(vfAddress)).toMatchObject({ vendor: '15b3', iommuGroup: '57' });
  });

  it("fails if an IOMMU group's members cannot be listed, instead of treating the group as empty", async () => {
    lay('41');
    rmSync(join(dir.path, 'kernel/iommu_groups/41'), { recursive: true });
    await expect(sysfs.pciFunction(vfAddress)).rejects.toMatchObject({ code: 'sysfs-unreadable', retriable: true });
  });

  it('sees changes in the members of an IOMMU group, and does not count bridges', async () => {
    const neighbour = '0000:3b:00.5';
    lay('41');
    layFunction(dir.path, { pciAddress: '0000:3a:00.0', class: '0x060400', iommuGroup: '41' });
    await sysfs.networkFunctions();
    expect((await sysfs.pciFunction(vfAddress)).iommuPeers).toEqual([]);
    layFunction(dir.path, { pciAddress: neighbour, class: '0x010802', iommuGroup: '41' });
    await sysfs.networkFunctions();
    expect((await sysfs.pciFunction(vfAddress)).iommuPeers).toEqual([neighbour]);
    rmSync(device(neighbour));
    rmSync(join(dir.path, 'kernel/iommu_groups/41/devices', neighbour));
    await sysfs.networkFunctions();
    expect((await sysfs.pciFunction(vfAddress)).iommuPeers).toEqual([]);
  });
});

describe('Sysfs.interfaces and port', () => {
  const lay = (speed: string | undefined, type?: string) =>
    layFunction(dir.path, {
      pciAddress: pfAddress,
      interfaces: [{ name: 'ens1f0', mtu: 9000, ...(speed === undefined ? {} : { speed }), ...(type ? { type } : {}) }],
    });

  it.each([
    ['100000', 100_000],
    ['-1', undefined],
    ['0', undefined],
    // -1 as some kernels print it
    ['4294967295', undefined],
    ['', undefined],
    [undefined, undefined],
  ])('maps speed %j to %j', async (speed, expected) => {
    lay(speed);
    expect((await sysfs.port(pfAddress, 'ens1f0')).linkSpeedMbps).toBe(expected);
  });

  it('returns no speed if the kernel reports none', async () => {
    lay(undefined);
    // The kernel answers EINVAL, as it does for a card that is down.
    symlinkSync('/sys/class/net/lo', device(pfAddress, 'net/lo'));
    expect(await sysfs.port(pfAddress, 'lo')).toEqual({});
    // Another error, as of firmware that does not answer: the rest of the card is read all the same.
    mkdirSync(device(pfAddress, 'net/ens1f0/speed'));
    expect(await sysfs.port(pfAddress, 'ens1f0')).toEqual({ linkType: 'ethernet' });
  });

  it.each(['address', 'mtu'])('ignores an interface that is being removed, whose %s is unreadable', async (name) => {
    lay('25000');
    rmSync(device(pfAddress, `net/ens1f0/${name}`));
    // The kernel answers EINVAL, as it does for an interface that is being unregistered.
    symlinkSync('/sys/class/net/lo/speed', device(pfAddress, `net/ens1f0/${name}`));
    expect(await sysfs.interfaces(pfAddress)).toEqual([]);
  });

  it('keeps a card whose type is temporarily unreadable, as while its interface is removed', async () => {
    lay('25000');
    rmSync(device(pfAddress, 'net/ens1f0/type'));
    symlinkSync('/sys/class/net/lo/speed', device(pfAddress, 'net/ens1f0/type'));
    expect(await sysfs.port(pfAddress, 'ens1f0')).toEqual({ linkSpeedMbps: 25_000 });
  });

  it.each([
    ['1', 'ethernet'],
    ['32', 'infiniband'],
    ['772', undefined],
  ])('maps type %s to %j', async (type, expected) => {
    lay('1000', type);
    expect((await sysfs.port(pfAddress, 'ens1f0')).linkType).toBe(expected);
  });
});

it('Sysfs.rdmaDevices finds RDMA devices by their PCI function, and no software devices', async () => {
  layFunction(dir.path, { pciAddress: pfAddress, above, rdmaDevices: ['mlx5_0', 'mlx5_1'] });
  layFunction(dir.path, { pciAddress: '0000:3b:00.1', above, rdmaDevices: ['mlx5_2'] });
  symlinkSync('../../devices/virtual/infiniband/rxe0', join(dir.path, 'class/infiniband/rxe0'));
  expect(Object.fromEntries(await sysfs.rdmaDevices())).toEqual({
    [pfAddress]: ['mlx5_0', 'mlx5_1'],
    '0000:3b:00.1': ['mlx5_2'],
  });
});
