import { rmSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { defined } from '../../../../src/lib/defined.ts';
import { DriverBinding, type VfWanted } from '../../../../src/node/sriov/index.ts';
import { pfAddress, type SriovCard, soundCard, vfAddress } from '../../../doubles/sriov-card.ts';
import { failure } from './failure.ts';
import { openVf, openWithSnapshot } from './vf-bench.ts';

describe('user-space binding', () => {
  it('is rejected for a VF whose IOMMU group the kernel uses, before any change', async () => {
    const { card, hardware, address, before } = await openWithSnapshot({ iommu: 'shared' });
    const wanted = { driver: 'vfio-pci', vf: { hardwareAddress: '02:aa:00:00:00:01' } };
    expect(await failure(hardware.configure(address, wanted, before))).toMatch(
      /0000:01:10\.0 shares IOMMU group 7 with 0000:01:10\.1, 0000:02:00\.0 \(a group goes to user space as a whole/,
    );
    expect(card.log).toEqual([]);
    expect(await hardware.groupMembers(address)).toEqual([vfAddress(1), soundCard]);
  });

  it.each([true, false])(
    'is rejected for a VF whose IOMMU group has unidentifiable members (IOMMU on: %s)',
    async (isOn) => {
      const { card, hardware } = openVf({ iommu: isOn ? 'own' : 'none' });
      card.writeText('module/vfio/parameters/enable_unsafe_noiommu_mode', 'Y\n');
      if (!isOn) await new DriverBinding(card.root, card.write).bind(vfAddress(0), 'vfio-pci');
      // A device of another bus, and one that was removed just now.
      const members = ['0000:05:00.0', 'platform-dev.0'];
      for (const member of members) card.writeText(`kernel/iommu_groups/40/devices/${member}`, '');
      const before = await hardware.snapshot(card.address(0));
      await expect(hardware.configure(card.address(0), { driver: 'vfio-pci' }, before)).rejects.toMatchObject({
        code: 'iommu-group-shared',
        message: expect.stringContaining(`group 40 with ${members.join(', ')}`),
      });
      expect(await hardware.groupMembers(card.address(0))).toEqual(members);
    },
  );

  it('is rejected if the IOMMU group of the VF cannot be listed, but allowed without a group', async () => {
    const { card, hardware } = openVf();
    card.writeText('module/vfio/parameters/enable_unsafe_noiommu_mode', 'Y\n');
    rmSync(card.path('kernel/iommu_groups/40/devices'), { recursive: true });
    const before = await hardware.snapshot(card.address(0));
    await expect(hardware.configure(card.address(0), { driver: 'vfio-pci' }, before)).rejects.toMatchObject({
      code: 'sysfs-unreadable',
      retriable: true,
      message: expect.stringContaining(`${vfAddress(0)}/iommu_group/devices`),
    });
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  });

  it('is allowed if the other group members use vfio, pci-stub or no driver, or are bridges', async () => {
    const { card, hardware } = openVf({ iommu: 'shared', drivers: ['igbvf', 'vfio-pci', 'snd', 'pci-stub'] });
    card.writeText(`bus/pci/devices/${soundCard}/class`, '0x060400\n');
    const unbind = card.path('bus/pci/devices', vfAddress(1), 'driver/unbind');
    const before = await hardware.snapshot(card.address(0));
    for (const driver of ['vfio-pci', 'pci-stub', undefined]) {
      await card.write(unbind, vfAddress(1));
      if (driver !== undefined) {
        await card.write(card.path('bus/pci/devices', vfAddress(1), 'driver_override'), driver);
        await card.write(card.path('bus/pci/drivers_probe'), vfAddress(1));
      }
      await hardware.configure(card.address(0), { driver: 'vfio-pci' }, before);
      expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
      await hardware.restore(card.address(0), before);
    }
  });

  it("needs the administrator's permission if the name of the IOMMU group shows that there is no IOMMU", async () => {
    const { card, hardware, address, before } = await openWithSnapshot({ iommu: 'none' });
    expect(await failure(hardware.configure(address, { driver: 'vfio-pci' }, before))).toMatch(
      /0000:01:10\.0 has no IOMMU group, which vfio needs \(switch the IOMMU on, .*enable_unsafe_noiommu_mode=1\)/,
    );
    expect(card.log).toEqual([]);
    card.writeText('module/vfio/parameters/enable_unsafe_noiommu_mode', 'Y\n');
    await hardware.configure(address, { driver: 'vfio-pci' }, before);
    expect(await hardware.access(address, { vhost: false, rdma: false })).toEqual({
      driver: 'vfio-pci',
      vfio: { device: '/dev/vfio/noiommu-40', iommuGroup: '40' },
      nodes: ['/dev/vfio/vfio', '/dev/vfio/noiommu-40'],
    });
  });

  it("returns a VF's group device and, if the kernel has iommufd, its own device", async () => {
    for (const iommufd of [false, true]) {
      const { card, hardware } = openVf({ iommufd });
      await hardware.configure(card.address(1), { driver: 'vfio-pci' }, await hardware.snapshot(card.address(1)));
      expect(await hardware.access(card.address(1), { vhost: false, rdma: true })).toEqual({
        driver: 'vfio-pci',
        vfio: { device: '/dev/vfio/41', iommuGroup: '41' },
        nodes: ['/dev/vfio/vfio', '/dev/vfio/41', ...(iommufd ? ['/dev/vfio/devices/vfio1', '/dev/iommu'] : [])],
      });
    }
  });

  it('names a driver that is not loaded, and changes nothing', async () => {
    const { card, hardware, address, before } = await openWithSnapshot();
    expect(await failure(hardware.configure(address, { driver: 'mlx5_vfio_pci' }, before))).toMatch(
      /there is no driver mlx5_vfio_pci.*\(modprobe mlx5_vfio_pci\)/,
    );
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  });
});

it('a PF without an interface lets its VFs be bound to vfio-pci, but rejects settings that need its interface', async () => {
  const { card, hardware, address } = openVf();
  const links = card.host.links;
  card.host.links = async () => (await links()).filter(({ name }) => name !== 'pf0');
  const before = await hardware.snapshot(address, { wanted: { driver: 'vfio-pci' } });
  expect(before.vf).toEqual({});
  await hardware.configure(address, { driver: 'vfio-pci' }, before);
  expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
  await hardware.restore(address, before);
  expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  const wanted = { vf: { trust: true } };
  await expect(hardware.snapshot(address, { wanted })).rejects.toMatchObject({ code: 'vf-missing' });
  expect(await failure(hardware.configure(address, wanted, before))).toMatch(
    /the PF 0000:01:00\.0 of 0000:01:10\.0 has no network interface/,
  );
  expect(await hardware.info(address)).toBeUndefined();
});

describe('a VF without an interface', () => {
  const unbound = async (card: SriovCard, driver?: string) => {
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver/unbind'), vfAddress(0));
    if (driver === undefined) return;
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver_override'), driver);
    await card.write(card.path('bus/pci/drivers_probe'), vfAddress(0));
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver_override'), '');
  };

  it.each(
    [undefined, 'igb_uio', 'uio_pci_generic', 'pci-stub', 'pciback'].flatMap((driver) => {
      const claims: [string, VfWanted][] = [
        ['sets nothing', {}],
        ['sets driver default', { driver: 'default' }],
        ['sets trust', { vf: { trust: true } }],
      ];
      return claims.map(([claim, wanted]) => [driver ?? 'no driver', claim, driver, wanted] as const);
    }),
  )(
    'gets an interface from the default driver, and is restored to %s, for a claim that %s',
    async (_, _claim, driver, wanted) => {
      const { card, hardware } = openVf({ drivers: ['igbvf', 'snd', ...(driver === undefined ? [] : [driver])] });
      await unbound(card, driver);
      const state = card.state(0);
      const before = await hardware.snapshot(card.address(0));
      await hardware.configure(card.address(0), wanted, before);
      expect([card.driverOf(vfAddress(0)), card.link(0)?.parentDevice]).toEqual(['igbvf', vfAddress(0)]);
      await hardware.restore(card.address(0), before);
      expect(card.state(0)).toEqual(state);
    },
  );

  it.each([
    ['no driver', undefined, {}],
    ['driver vfio-pci', 'vfio-pci', { driver: 'default' }],
  ])(
    'gets no interface while sriov_drivers_autoprobe is off, and the error names that file, if the VF had %s',
    async (_, driver, wanted) => {
      const { card, hardware } = openVf({ probesVfs: false });
      await unbound(card, driver);
      const state = card.state(0);
      const before = await hardware.snapshot(card.address(0));
      await expect(hardware.configure(card.address(0), wanted, before)).rejects.toMatchObject({
        code: 'binding-failed',
        device: vfAddress(0),
        retriable: true,
        hint:
          `write 1 to /sys/bus/pci/devices/${pfAddress}/sriov_drivers_autoprobe, or the kernel driver's name to ` +
          `driver_override of ${vfAddress(0)} and then that address to /sys/bus/pci/drivers_probe, or use driver: vfio-pci`,
      });
      expect(card.state(0)).toEqual(state);
      await hardware.configure(card.address(0), { driver: 'vfio-pci' }, before);
      expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
    },
  );

  it('gets the driver in driver_override even if the kernel probes no VFs', async () => {
    const { card, hardware } = openVf({ probesVfs: false });
    await unbound(card);
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver_override'), 'igbvf');
    await hardware.configure(card.address(0), {}, await hardware.snapshot(card.address(0)));
    expect([card.driverOf(vfAddress(0)), card.link(0)?.parentDevice]).toEqual(['igbvf', vfAddress(0)]);
  });

  it('keeps the vfio driver that an administrator chose if the claim sets no driver', async () => {
    const { card, hardware } = openVf();
    await unbound(card, 'vfio-pci');
    await hardware.configure(card.address(0), {}, await hardware.snapshot(card.address(0)));
    expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
  });

  it.each([undefined, 'default'])(
    'has its driver bound again if the driver created no interface (driver of the claim: %s)',
    async (driver) => {
      const { card, hardware } = openVf();
      card.silentProbes.set('igbvf', 1);
      await unbound(card, 'igbvf');
      await hardware.configure(card.address(0), defined({ driver }), await hardware.snapshot(card.address(0)));
      expect(card.link(0)).toBeDefined();
    },
  );

  it('is not bound again while its driver is still creating the interface', async () => {
    const { card, hardware, clock } = openVf();
    card.silentProbes.set('igbvf', 1);
    await unbound(card, 'igbvf');
    card.log.length = 0;
    clock.after(300, () => card.writeText(`bus/pci/devices/${vfAddress(0)}/net/eth0/mtu`, '1500'));
    await hardware.configure(card.address(0), {}, await hardware.snapshot(card.address(0)));
    expect(card.log).toEqual([]);
  });

  it('is not bound again if its interface is in another network namespace', async () => {
    const { card, hardware } = openVf();
    card.moveAway(0);
    await hardware.configure(card.address(0), {}, await hardware.snapshot(card.address(0)));
    expect(card.log).toEqual([]);
  });

  it('is rejected, naming its driver, if binding again creates no interface', async () => {
    const { card, hardware } = openVf();
    card.silentProbes.set('igbvf', 2);
    await unbound(card, 'igbvf');
    const configured = hardware.configure(card.address(0), {}, await hardware.snapshot(card.address(0)));
    await expect(configured).rejects.toMatchObject({
      code: 'interface-missing',
      device: vfAddress(0),
      retriable: true,
      hint: expect.any(String),
      message: `${vfAddress(0)} has no interface: its driver igbvf created none, even after it was bound again`,
    });
  });
});

it('a freshly bound driver is accepted if sysfs shows it a moment after the write has returned', async () => {
  const { card, hardware, clock } = openVf();
  const { write } = card;
  const late = async (path: string, text: string) =>
    path.endsWith('drivers_probe') ? clock.after(300, () => void write(path, text)) : await write(path, text);
  const binding = new DriverBinding(card.root, late, clock);
  await binding.bind(vfAddress(0), 'vfio-pci').catch(() => undefined);
  expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
  await binding.bindDefault(vfAddress(0));
  expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  await expect(hardware.configure(card.address(0), {}, { vf: {} })).resolves.toBeUndefined();
});

it('a sysfs write is repeated only while the card is busy', async () => {
  const { card, hardware, address, before } = await openWithSnapshot();
  card.refusals.push('EAGAIN', 'EBUSY', 'EBUSY');
  await hardware.configure(address, { driver: 'vfio-pci' }, before);
  expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
  await hardware.restore(address, before);
  card.refusals.push('EIO', 'EIO');
  await expect(hardware.configure(address, { driver: 'vfio-pci' }, before)).rejects.toMatchObject({
    code: 'binding-failed',
    cause: expect.objectContaining({ code: 'EIO' }),
  });
  expect(card.refusals).toEqual(['EIO']);
});

it('DriverBinding.bindDefault fails if the kernel binds the VF to no driver, or to vfio', async () => {
  const { card, clock } = openVf();
  const binding = new DriverBinding(card.root, card.write, clock);
  await binding.bind(vfAddress(0), 'vfio-pci');
  card.failingDrivers.add('igbvf');
  expect(await failure(binding.bindDefault(vfAddress(0)))).toMatch(
    /gives 0000:01:10\.0 no driver, so that it has no interface \(load/,
  );
  const { card: stubborn } = openVf({ defaultDriver: 'vfio-pci' });
  const other = new DriverBinding(stubborn.root, stubborn.write, clock);
  expect(await failure(other.bindDefault(vfAddress(0)))).toMatch(/gives 0000:01:10\.0 vfio-pci, .*\(vfio-pci claims/);
});
