import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { explain } from '../../../../src/lib/errors.ts';
import { NetlinkError } from '../../../../src/node/netlink/index.ts';
import { DriverBinding, type VfWanted } from '../../../../src/node/sriov/index.ts';
import { pfAddress, type SriovCard, type SriovCardOptions, vfAddress } from '../../../doubles/sriov-card.ts';
import { failure } from './failure.ts';
import { openVf, openWithSnapshot } from './vf-bench.ts';

/** Applies and restores; what the host sees must be the same as before. */
async function thereAndBack(wanted: VfWanted, options?: SriovCardOptions) {
  const { card, hardware } = openVf(options);
  Object.assign(card.link(0) ?? {}, { name: 'ens1f0v0', mtuBytes: 1400, up: true });
  const address = card.address(0);
  const state = card.state(0);
  const before = await hardware.snapshot(address);
  await hardware.configure(address, wanted, before);
  const changed = card.state(0);
  await hardware.restore(address, before);
  return { card, hardware, state, changed, restored: card.state(0) };
}

describe('VfHardware', () => {
  const wishes: VfWanted[] = [
    { vf: { hardwareAddress: '02:aa:00:00:00:01' } },
    { vf: { vlan: { id: 7, priority: 3 } } },
    { vf: { vlan: { id: 7, protocol: '802.1ad' } } },
    { vf: { trust: true, spoofCheck: false, linkState: 'enable' } },
    { vf: { rate: { maxMbps: 100 } } },
    { driver: 'vfio-pci' },
    { driver: 'vfio-pci', vf: { hardwareAddress: '02:aa:00:00:00:01', vlan: { id: 7 } } },
  ];

  it.each(wishes)(
    "restores a VF to its original state after %j: driver, MAC, name, MTU, up, and the PF's settings",
    async (wanted) => {
      const { state, changed, restored } = await thereAndBack(wanted);
      expect(changed).not.toEqual(state);
      expect(restored).toEqual(state);
    },
  );

  it('keeps name, MTU and up flag of an interface whose VF is rebound', async () => {
    const { changed, state } = await thereAndBack({ vf: { hardwareAddress: '02:aa:00:00:00:01' } });
    // igbvf learns of its address only when it is bound.
    expect(changed.link).toEqual({ ...state.link, hardwareAddress: '02:aa:00:00:00:01' });
  });

  it.each<VfWanted>([{ driver: 'vfio-pci' }, { driver: 'vfio-pci', vf: { trust: true } }])(
    'sets, for a VF that goes to vfio-pci, the MAC that the VF had chosen in the kernel, and restores it afterwards (claim: %j)',
    async (wanted) => {
      const { state, changed, restored } = await thereAndBack(wanted, { tellsOwnAddresses: true });
      expect(state.info.hardwareAddress).toBe(state.link.hardwareAddress);
      expect(changed.info.hardwareAddress).toBe(state.link.hardwareAddress);
      expect(restored).toEqual(state);
    },
  );

  it("sets the VF's own MAC at the PF at every configuration, in case the PF was reset", async () => {
    const { card, hardware } = openVf({ tellsOwnAddresses: true });
    const address = card.link(0)?.hardwareAddress;
    const before = await hardware.snapshot(card.address(0));
    await hardware.configure(card.address(0), { driver: 'vfio-pci' }, before);
    await card.host.setVf(5, 0, { hardwareAddress: '00:00:00:00:00:00' });
    await hardware.configure(card.address(0), { driver: 'vfio-pci' }, before);
    expect(card.info(0)?.hardwareAddress).toBe(address);
  });

  it.each([true, false])(
    'configures a VF whose card cannot set MAC addresses (card reports the MACs of its VFs: %s)',
    async (tells) => {
      const { card, hardware, address, before } = await openWithSnapshot({
        tellsOwnAddresses: tells,
        unsupported: ['hardwareAddress'],
      });
      for (let n = 0; n < 2; n++) await hardware.configure(address, { driver: 'vfio-pci' }, before);
      expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
    },
  );

  it('keeps the minimum rate set by the operator if a claim sets only the maximum rate', async () => {
    const info = { minTxRateMbps: 50, maxTxRateMbps: 500 };
    const { changed } = await thereAndBack({ vf: { rate: { maxMbps: 200 } } }, { info });
    expect(changed.info).toMatchObject({ minTxRateMbps: 50, maxTxRateMbps: 200 });
  });

  it('writes no setting that already has the wanted value, except to reset a VF', async () => {
    const plain = { trust: false, linkState: 'auto' as const, spoofCheck: true };
    const { card, hardware, address, before } = await openWithSnapshot({
      info: { ...plain, minTxRateMbps: 0, maxTxRateMbps: 0, vlan: { id: 7, priority: 0 } },
      // What a card cannot do does not matter while it is asked to be as it is.
      unsupported: ['trust', 'linkState', 'rate', 'spoofCheck', 'hardwareAddress'],
    });
    const vf = { ...plain, vlan: { id: 7 }, rate: { minMbps: 0, maxMbps: 0 } };
    await hardware.configure(address, { vf, driver: 'igbvf' }, before);
    await hardware.configure(address, { driver: 'default' }, before);
    await hardware.restore(address, before, { reset: false });
    expect(card.log).toEqual([]);
    await hardware.restore(address, before);
    expect(card.log).toEqual([`unbind ${vfAddress(0)}`, `bind ${vfAddress(0)} igbvf`]);
  });

  it("keeps an administrator's driver_override", async () => {
    const { card, hardware } = openVf();
    card.writeText(`bus/pci/devices/${vfAddress(0)}/driver_override`, 'igbvf\n');
    const before = await hardware.snapshot(card.address(0));
    await hardware.configure(card.address(0), { driver: 'vfio-pci' }, before);
    expect(card.overrideOf(vfAddress(0))).toBe('(null)');
    await hardware.restore(card.address(0), before);
    expect(card.overrideOf(vfAddress(0))).toBe('igbvf');
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  });

  it('unbinds a VF from vfio for a claim that wants an interface, and binds it back', async () => {
    const { card, hardware } = openVf();
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver/unbind'), vfAddress(0));
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver_override'), 'vfio-pci');
    await card.write(card.path('bus/pci/drivers_probe'), vfAddress(0));
    const before = await hardware.snapshot(card.address(0));
    expect(before).toMatchObject({ driver: 'vfio-pci', driverOverride: 'vfio-pci' });
    await hardware.configure(card.address(0), { driver: 'default' }, before);
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
    await hardware.restore(card.address(0), before);
    expect([card.driverOf(vfAddress(0)), card.overrideOf(vfAddress(0))]).toEqual(['vfio-pci', 'vfio-pci']);
  });
});

describe('a VF changed by its pod', () => {
  /** What a process with NET_ADMIN does to it, and what the kernel and udev make of it when its namespace ends. */
  function changeAll(card: SriovCard, vfIndex: number): void {
    const link = card.link(vfIndex);
    if (link === undefined) throw new Error('the VF has no link');
    Object.assign(link, { name: 'net1', altNames: ['br-ex', 'ens1f0v0'], alias: 'mine', mtuBytes: 1280, up: true });
    Object.assign(link, { flags: ['noArp', 'promiscuous'], group: 99, txQueueLength: 7, xdp: ['driver'] });
    card.changeSettings(vfIndex, { rings: { rx: 64, tx: 64 }, features: { 'rx-checksum': false } });
  }

  async function prepare(options?: SriovCardOptions) {
    const bench = openVf(options);
    const { card, hardware, address } = bench;
    Object.assign(card.link(0) ?? {}, { name: 'ens1f0v0', altNames: ['enp1s16'], alias: 'first', up: true });
    card.changeSettings(0, { rings: { rx: 512, tx: 256 }, features: { 'rx-checksum': true } });
    const [state, before] = [card.state(0), await hardware.snapshot(address)];
    // As the store does.
    return { ...bench, state, before: JSON.parse(JSON.stringify(before)) };
  }

  it.each([true, false])(
    'is restored although its claim changed nothing, with a reset of the VF: %s',
    async (reset) => {
      const { card, hardware, state, before } = await prepare();
      await hardware.configure(card.address(0), {}, before);
      expect(card.log).toEqual([]);
      changeAll(card, 0);
      await hardware.restore(card.address(0), before, { reset });
      expect(card.state(0)).toEqual(state);
      expect(card.log.length > 0).toBe(reset);
    },
  );

  it('is restored after a CNI plugin changed it through the PF', async () => {
    const { card, hardware, state, before } = await prepare();
    await card.host.setVf(5, 0, { vlan: { id: 7 }, trust: true, spoofCheck: false, rate: { minMbps: 0, maxMbps: 10 } });
    await card.host.setVf(5, 0, { hardwareAddress: '02:cc:00:00:00:01', linkState: 'disable' });
    await hardware.restore(card.address(0), before);
    expect(card.state(0)).toEqual(state);
  });

  it('can set its own MAC after it is restored, unless the PF had set a MAC before', async () => {
    const { card, hardware, state, before } = await prepare({ tellsOwnAddresses: true });
    const other = { hardwareAddress: '02:dd:00:00:00:01' };
    await card.host.setLink(card.link(0)!.index, { ...other, up: false });
    expect(card.info(0)).toMatchObject(other);
    await hardware.restore(card.address(0), before);
    expect(card.state(0)).toEqual(state);
    await card.host.setLink(card.link(0)!.index, other);
  });

  it('is not reset if the device is a whole NIC', async () => {
    const { card, hardware, before } = await prepare();
    await hardware.restore({ pciAddress: vfAddress(0) }, { ...before, vf: {} });
    expect(card.log).toEqual([]);
  });

  it('is restored even if another interface took its name, and the error names that interface', async () => {
    const { card, hardware, state, before } = await prepare();
    changeAll(card, 0);
    Object.assign(card.link(1) ?? {}, { name: 'ens1f0v0' });
    const error = await hardware.restore(card.address(0), before).catch((each: unknown) => each);
    expect(error).toMatchObject({ code: 'restore-incomplete', properties: ['link.name'], retriable: true });
    expect(explain(error)).toMatch(/cannot rename link #\d+ to ens1f0v0: .*rename or delete/);
    expect(explain(error)).toContain(`: the name is taken by link #${card.link(1)?.index} (`);
    expect(card.state(0)).toEqual({ ...state, link: { ...state.link, name: expect.stringMatching(/^netdra\d+$/) } });
    Object.assign(card.link(1) ?? {}, { name: 'other' });
    await hardware.restore(card.address(0), before);
    expect(card.state(0)).toEqual(state);
  });

  it.each(['hardwareAddress', 'mtuBytes'] as const)(
    "is not restored if its driver accepts the old %s but keeps the pod's value",
    async (property) => {
      const { card, hardware, state, before, clock } = await prepare();
      const { setLink } = card.host;
      const change = () => Object.assign(card.link(0) ?? {}, { mtuBytes: 1280, hardwareAddress: '02:66:00:00:00:01' });
      change();
      card.host.setLink = async (index, { [property]: _ignored, ...rest }) => await setLink(index, rest);
      await expect(hardware.restore(card.address(0), before, { reset: false })).rejects.toMatchObject({
        code: 'restore-incomplete',
        properties: [`link.${property}`],
      });
      card.host.setLink = async (index, wanted) => clock.after(200, () => void setLink(index, wanted));
      change();
      await hardware.restore(card.address(0), before, { reset: false });
      expect(card.state(0)).toEqual(state);
    },
  );

  it("gets its driver and the administrator's driver_override back after an interrupted restore", async () => {
    const { card, hardware, state, before } = await prepare();
    // SIGKILL between unbind and bind, and between bind and the end.
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver_override'), 'igbvf');
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver/unbind'), vfAddress(0));
    await hardware.restore(card.address(0), before);
    expect(card.state(0)).toEqual(state);
    await card.write(card.path('bus/pci/devices', vfAddress(0), 'driver_override'), 'igbvf');
    await hardware.restore(card.address(0), before);
    expect(card.state(0)).toEqual(state);
  });

  it('is restored as far as possible, and every property that is not restored is reported', async () => {
    const { card, hardware, before } = await prepare();
    changeAll(card, 0);
    await card.host.setVf(5, 0, { trust: true, spoofCheck: false });
    card.failingDrivers.add('igbvf');
    const { setVf } = card.host;
    card.host.setVf = async (pf, vf, change) => {
      if ('trust' in change) throw new NetlinkError('netlink-refused', 'cannot do that', { errno: 'EIO' });
      await setVf(pf, vf, change);
    };
    await expect(hardware.restore(card.address(0), before)).rejects.toMatchObject({
      code: 'restore-incomplete',
      message: `${vfAddress(0)} could not be restored: vf.trust, driver`,
      properties: ['vf.trust', 'driver'],
      hint: expect.any(String),
      cause: expect.any(AggregateError),
    });
    expect(card.info(0)).toMatchObject({ trust: true, spoofCheck: true });
  });
});

it('restoring a VF lists the links of the host only a few times while sysfs shows no interface', async () => {
  const { card, hardware, before, address } = await openWithSnapshot();
  let dumps = 0;
  const { links } = card.host;
  card.host.links = async (...of) => {
    dumps += 1;
    return await links(...of);
  };
  card.silentProbes.set('igbvf', 1);
  expect(await failure(hardware.restore(address, before))).toContain('has no interface 5000 ms after');
  expect(dumps).toBeLessThan(5);
});

describe('a pending rebind', () => {
  const wanted = { vf: { hardwareAddress: '02:aa:00:00:00:01' } };

  it('is completed by the next attempt if the driver was not bound again', async () => {
    const { card, hardware, address, before } = await openWithSnapshot();
    card.failingDrivers.add('igbvf');
    expect(await failure(hardware.configure(address, wanted, before))).toMatch(/has no driver instead of igbvf/);
    card.failingDrivers.clear();
    await hardware.configure(address, wanted, before);
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
    expect(card.link(0)).toMatchObject({ name: before.link?.name, ...wanted.vf });
  });

  it('is repeated if another property failed after the MAC was set', async () => {
    const { card, hardware, address, before } = await openWithSnapshot();
    const { setVf } = card.host;
    card.host.setVf = async (pf, vf, change) => {
      if ('vlan' in change) throw new NetlinkError('netlink-refused', 'busy', { errno: 'EBUSY', retriable: true });
      await setVf(pf, vf, change);
    };
    const both = { vf: { ...wanted.vf, vlan: { id: 5 } } };
    expect(await failure(hardware.configure(address, both, before))).toMatch(/cannot set vlan/);
    card.host.setVf = setVf;
    await hardware.configure(address, both, before);
    expect(card.link(0)?.hardwareAddress).toBe(wanted.vf.hardwareAddress);
  });

  it('is not repeated after it succeeded', async () => {
    const { card, hardware, address, before } = await openWithSnapshot();
    for (let n = 0; n < 3; n++) await hardware.configure(address, wanted, before);
    expect(card.log.filter((entry) => entry.startsWith('bind'))).toHaveLength(1);
  });

  it('keeps the original interface name if it was interrupted', async () => {
    const { card, hardware, clock } = openVf();
    Object.assign(card.link(0) ?? {}, { name: 'ens1f0v0', mtuBytes: 1400, up: true });
    const before = await hardware.snapshot(card.address(0));
    await card.host.setVf(5, 0, wanted.vf);
    await new DriverBinding(card.root, card.write, clock).rebind(vfAddress(0));
    await hardware.configure(card.address(0), wanted, before);
    expect(card.link(0)).toMatchObject({ name: 'ens1f0v0', mtuBytes: 1400, up: true, ...wanted.vf });
  });
});

describe('the RDMA device of a VF', () => {
  it('is awaited after the VF is bound to its driver, and found again after udev renamed it', async () => {
    const { card, hardware, clock } = openVf();
    const dir = `bus/pci/devices/${vfAddress(0)}`;
    clock.after(40, () => card.writeText(`${dir}/infiniband/mlx5_24/node_type`, '1: CA\n'));
    clock.after(80, () => card.writeText(`${dir}/infiniband_verbs/uverbs24/uevent`, 'DEVNAME=infiniband/uverbs24\n'));
    const access = await hardware.access(card.address(0), { vhost: false, rdma: true });
    expect(access).toMatchObject({ rdmaDevice: 'mlx5_24', nodes: ['/dev/infiniband/uverbs24'] });
    renameSync(card.path(dir, 'infiniband/mlx5_24'), card.path(dir, 'infiniband/rocep59s0f0v0'));
    expect(await hardware.rdmaDevice(card.address(0))).toBe('rocep59s0f0v0');
  });

  it('makes the claim fail, with a retry if it does not appear in time, without one if it is unusable', async () => {
    const { card, hardware, clock } = openVf();
    const absent = hardware.access(card.address(0), { vhost: false, rdma: true });
    await expect(absent).rejects.toMatchObject({ code: 'device-node-missing', retriable: true });
    const waitedMs = clock.nowMs();
    expect(waitedMs).toBeGreaterThan(1_000);
    card.writeText('module/ib_core/parameters/netns_mode', 'N\n');
    card.writeText(`bus/pci/devices/${vfAddress(0)}/infiniband/mlx5_24/node_type`, '1: CA\n');
    const refused = hardware.access(card.address(0), { vhost: false, rdma: true });
    await expect(refused).rejects.toMatchObject({ code: 'rdma-unusable', retriable: false });
    expect(clock.nowMs()).toBe(waitedMs);
  });
});

it('the MTU of a VF is limited by its interface, if it has one, and by its PF', async () => {
  const { card, hardware } = openVf({ mtu: { pf: 2000, vf: 1900 } });
  const pf = { minBytes: 0, maxBytes: 2000, of: 'its PF pf0' };
  const limits = await hardware.mtuLimits(card.address(0));
  expect(limits).toEqual([{ minBytes: 68, maxBytes: 1900, of: `its interface ${card.link(0)?.name}` }, pf]);
  card.moveAway(0);
  expect(await hardware.mtuLimits(card.address(0))).toEqual([pf]);
});

it('an InfiniBand VF keeps its address apart from the queue pair number when bound to vfio and back', async () => {
  const { card, hardware, address, before } = await openWithSnapshot({
    isInfiniBand: true,
    unsupported: ['hardwareAddress'],
  });
  expect(before.link?.hardwareAddress).toHaveLength(59);
  expect(before.vf).not.toHaveProperty('hardwareAddress');
  await hardware.configure(address, { driver: 'vfio-pci' }, before);
  expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
  expect(await hardware.info(address)).not.toHaveProperty('hardwareAddress');
  await hardware.restore(address, before);
  expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  expect(card.link(0)).toMatchObject({ name: before.link?.name });
  expect(card.log.filter((entry) => entry.startsWith('setVf'))).toEqual([]);
});

it('a removed VF cannot be prepared, but its claim can end without restoring it', async () => {
  const { card, hardware, address, before } = await openWithSnapshot();
  const wanted = { driver: 'vfio-pci', vf: { trust: true } };
  await hardware.configure(address, wanted, before);
  card.switchOff();
  card.log.length = 0;
  await hardware.restore(address, before);
  expect(card.log).toEqual([]);
  expect(await failure(hardware.configure(address, { driver: 'default' }, before))).toMatch(/0000:01:10\.0/);
});

describe('a VF that is missing during error recovery, while its PF keeps its settings', () => {
  const claimed = { vlan: { id: 100, priority: 0 }, trust: true, hardwareAddress: '02:aa:00:00:00:01' };
  const openAway = async () => {
    const bench = await openWithSnapshot();
    await bench.hardware.configure(bench.address, { vf: claimed }, bench.before);
    const dir = bench.card.path('bus/pci/devices', vfAddress(0));
    renameSync(dir, `${bench.card.root}/away`);
    return { ...bench, comeBack: () => renameSync(`${bench.card.root}/away`, dir) };
  };

  it('loses the VLAN, trust and MAC of its claim while it is missing', async () => {
    const { card, hardware, address, before, comeBack } = await openAway();
    const found = { ...card.info(1), vfIndex: 0 };
    await hardware.restore(address, before, { changed: claimed });
    comeBack();
    expect(card.info(0)).toEqual(found);
  });

  it('is not restored until the PF can be queried and accepts settings', async () => {
    const { card, hardware, address, before } = await openAway();
    card.ignored.add('vlan');
    expect(await failure(hardware.restore(address, before, { changed: claimed }))).toContain(
      'could not be restored: vf.vlan',
    );
    card.listError = new NetlinkError('netlink-refused', 'too long', { errno: 'EMSGSIZE' });
    expect(await failure(hardware.restore(address, before, { changed: claimed }))).toContain(
      'could not be restored: vf',
    );
  });
});

it('a missing VF is not restored while the interface of its PF is missing', async () => {
  const { card, hardware, address, before } = await openWithSnapshot();
  const claimed = { vlan: { id: 100 } };
  await hardware.configure(address, { vf: claimed }, before);
  renameSync(card.path('bus/pci/devices', vfAddress(0)), `${card.root}/away`);
  mkdirSync(card.path('bus/pci/devices', pfAddress));
  const { links, link } = card.host;
  card.host.links = async (keys) => (await links(keys)).filter(({ name }) => name !== 'pf0');
  card.host.link = async (key) => {
    const found = await link(key);
    return found?.name === 'pf0' ? undefined : found;
  };
  const restore = () => hardware.restore(address, before, { changed: claimed });
  expect(await failure(restore())).toMatch(/could not be restored: vf.*has no network interface/s);
  rmSync(card.path('bus/pci/devices', pfAddress), { recursive: true });
  await restore();
});

describe('a VF bound to vfio-pci before its claim', () => {
  it.each([
    ['driver vfio-pci', { driver: 'vfio-pci' }],
    ['no driver', {}],
  ])('is reset after a claim that sets %s, like a VF that changes driver', async (_, wanted) => {
    const { card, hardware, address } = openVf();
    await new DriverBinding(card.root, card.write).bind(vfAddress(0), 'vfio-pci');
    const before = await hardware.snapshot(address);
    await hardware.configure(address, wanted, before);
    card.log.length = 0;
    await hardware.restore(address, before);
    expect(card.log).toContain(`reset ${vfAddress(0)}`);
    expect(card.driverOf(vfAddress(0))).toBe('vfio-pci');
  });

  it('is reported if its card cannot reset single functions', async () => {
    const notReset: string[] = [];
    const { card, hardware, address } = openVf(
      { hasReset: false },
      { onNotReset: (...args) => notReset.push(args.join(' ')) },
    );
    await new DriverBinding(card.root, card.write).bind(vfAddress(0), 'vfio-pci');
    const before = await hardware.snapshot(address);
    await hardware.restore(address, before);
    expect(notReset).toEqual([`${vfAddress(0)} vfio-pci`]);
  });

  it('is not restored while the kernel rejects the reset', async () => {
    const { card, hardware, address } = openVf();
    await new DriverBinding(card.root, card.write).bind(vfAddress(0), 'vfio-pci');
    const before = await hardware.snapshot(address);
    card.refusals.push('EIO');
    expect(await failure(hardware.restore(address, before))).toContain('could not be restored: driver');
  });
});

it('a setting that a card does not support is reported with the fields to remove', async () => {
  const { card, hardware } = openVf({ unsupported: ['trust', 'linkState'] });
  card.writeText('bus/pci/drivers/igb/x', '');
  const wanted: VfWanted = { vf: { trust: true, linkState: 'enable', vlan: { id: 7 } } };
  const before = await hardware.snapshot(card.address(1));
  expect(await failure(hardware.configure(card.address(1), wanted, before))).toBe(
    'the card cannot set trust, linkState of VF 1 (0000:01:10.1) of PF pf0 (0000:01:00.0, driver none): ' +
      'cannot do that (EOPNOTSUPP) (leave vf.trust, vf.linkState out, or use a card that can do it)',
  );
  expect(card.info(1)).toMatchObject({ vlan: { id: 7 }, trust: false });
  // Giving it back is no failure: what could not be set is as it was.
  await hardware.restore(card.address(1), before);
  expect(card.info(1)?.vlan).toBeUndefined();
});
