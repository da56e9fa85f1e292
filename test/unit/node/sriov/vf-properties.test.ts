import { describe, expect, it } from 'vitest';
import { NetlinkError, type VfChange } from '../../../../src/node/netlink/index.ts';
import type { VfWanted } from '../../../../src/node/sriov/index.ts';
import { pfAddress, type SriovCard, vfAddress } from '../../../doubles/sriov-card.ts';
import { openVf } from './vf-bench.ts';

const writes = ({ log }: SriovCard) => log.filter((entry) => entry.startsWith('setVf'));
const tooLong = () => new NetlinkError('netlink-refused', 'message too long (EMSGSIZE)', { errno: 'EMSGSIZE' });
const noBuffers = () =>
  new NetlinkError('netlink-refused', 'no buffer space (ENOBUFS)', { errno: 'ENOBUFS', retriable: true });

const unknown = { code: 'vf-state-unknown', device: vfAddress(0), retriable: true, hint: expect.any(String) };
const tenant: VfWanted = { vf: { vlan: { id: 100 }, trust: true, spoofCheck: false } };
const mac = '02:aa:00:00:00:01';

describe('the snapshot of a VF that its PF does not report', () => {
  it('is taken once the PF reports the VF', async () => {
    const { card, hardware, clock, address } = openVf();
    const complete = await hardware.snapshot(address);
    card.leftOut.add(0);
    clock.after(800, () => card.leftOut.delete(0));
    expect(await hardware.snapshot(address, { wanted: tenant })).toEqual(complete);
    card.listError = noBuffers();
    clock.after(800, () => {
      card.listError = undefined;
    });
    expect(await hardware.snapshot(address, { wanted: tenant })).toEqual(complete);
  });

  it.each<[string, VfWanted]>([
    ['VLAN, trust and spoof check', tenant],
    ['the MAC', { vf: { hardwareAddress: mac } }],
    ['the MAC, which a VF keeps in user space', { driver: 'vfio-pci' }],
  ])('fails if the claim changes %s', async (_, wanted) => {
    const { card, hardware, clock, address } = openVf();
    card.leftOut.add(0);
    await expect(hardware.snapshot(address, { wanted })).rejects.toMatchObject({
      ...unknown,
      message: `PF pf0 (${pfAddress}) does not report VF 0 (${vfAddress(0)})`,
    });
    expect(clock.nowMs()).toBeGreaterThan(500);
    expect(clock.nowMs()).toBeLessThan(5_000);
    expect(card.log).toEqual([]);
  });

  it('fails at once if the list of VFs exceeds a kernel limit, with the reason', async () => {
    const { card, hardware, clock, address } = openVf();
    card.listError = tooLong();
    await expect(hardware.snapshot(address, { wanted: tenant })).rejects.toMatchObject({
      ...unknown,
      cause: card.listError,
      hint: expect.stringContaining('fewer VFs'),
    });
    expect(clock.nowMs()).toBe(0);
  });

  it.each([
    ['no claim is given', undefined],
    ['the claim sets only the driver', { wanted: { driver: 'default' } }],
  ])('contains no PF settings if %s, and suffices to restore the VF', async (_, options) => {
    for (const error of [undefined, tooLong(), noBuffers()]) {
      const { card, hardware, address } = openVf();
      const state = card.state(0);
      card.leftOut.add(0);
      card.listError = error;
      const before = await hardware.snapshot(address, options);
      expect(before).toMatchObject({ driver: 'igbvf', vf: {}, link: { name: state.link?.name } });
      await hardware.configure(address, { driver: 'default' }, before);
      Object.assign(card.link(0) ?? {}, { name: 'net1', mtuBytes: 1280 });
      await hardware.restore(address, before);
      expect(card.link(0)).toMatchObject({ name: state.link?.name, mtuBytes: state.link?.mtuBytes });
      expect(writes(card)).toEqual([]);
    }
  });

  it('fails if a CNI plugin can change the VF at the PF, unless the PF reports no VFs at all', async () => {
    const { card, hardware, address } = openVf();
    card.leftOut.add(0);
    await expect(hardware.snapshot(address, { byOthers: true })).rejects.toMatchObject(unknown);
    // A PF that does not manage its VFs, such as that of a BlueField in the host.
    card.leftOut.add(1);
    expect(await hardware.snapshot(address, { byOthers: true })).toMatchObject({ vf: {} });
    card.listError = tooLong();
    expect(await hardware.snapshot(address, { byOthers: true })).toMatchObject({ vf: {} });
    card.listError = noBuffers();
    await expect(hardware.snapshot(address, { byOthers: true })).rejects.toMatchObject(unknown);
  });

  it('is not needed in user space if the VF has no MAC to preserve', async () => {
    const { card, hardware, address } = openVf({ isInfiniBand: true, unsupported: ['hardwareAddress'] });
    card.listError = tooLong();
    const before = await hardware.snapshot(address, { wanted: { driver: 'vfio-pci' } });
    await hardware.configure(address, { driver: 'vfio-pci' }, before);
    expect(await hardware.info(address)).toBeUndefined();
    await hardware.restore(address, before, { changed: {} });
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  });
});

describe('a property that the PF does not report', () => {
  const info = { spoofCheck: true, linkState: 'auto' as const };

  it.each<VfWanted>([{ vf: { trust: true } }, { vf: { rate: { maxMbps: 100 } } }])(
    'is not set for a claim, since it could not be restored: %j',
    async (wanted) => {
      const { card, hardware, address } = openVf({ info });
      const refused = { code: 'property-unsupported', device: vfAddress(0), retriable: true };
      await expect(hardware.snapshot(address, { wanted })).rejects.toMatchObject(refused);
      const before = await hardware.snapshot(address);
      await expect(hardware.configure(address, wanted, before)).rejects.toMatchObject(refused);
      expect(card.log).toEqual([]);
      await hardware.restore(address, before, { changed: { trust: true } });
    },
  );
});

describe('a snapshot without a property that the claim changes', () => {
  const empty = async ({ card, hardware, address }: ReturnType<typeof openVf>) => {
    card.leftOut.add(0);
    const before = await hardware.snapshot(address);
    card.leftOut.delete(0);
    return before;
  };

  it.each<VfWanted>([tenant, { driver: 'vfio-pci' }, { driver: 'vfio-pci', ...tenant }])(
    'prevents configuration before anything is written: %j',
    async (wanted) => {
      const bench = openVf();
      const before = await empty(bench);
      await expect(bench.hardware.configure(bench.address, wanted, before)).rejects.toMatchObject(unknown);
      expect(bench.card.log).toEqual([]);
    },
  );

  it("is sufficient if the VF already has the claim's setting, as after an upgrade", async () => {
    const bench = openVf();
    const before = await empty(bench);
    await bench.card.host.setVf(5, 0, tenant.vf as VfChange);
    await bench.hardware.configure(bench.address, tenant, before);
  });

  it("leaves the VF unrestored while it has the claim's setting", async () => {
    const bench = openVf();
    const { card, hardware, address } = bench;
    const before = await empty(bench);
    await card.host.setVf(5, 0, { ...(tenant.vf as VfChange), hardwareAddress: mac });
    const changed = { ...tenant.vf, hardwareAddress: mac, rate: { maxMbps: 0 } };
    const properties = ['vf.vlan', 'vf.trust', 'vf.spoofCheck', 'vf.hardwareAddress', 'vf.rate'];
    const failed = {
      code: 'restore-incomplete',
      retriable: true,
      hint: expect.stringContaining('ip link set pf0 vf 0'),
    };
    await expect(hardware.restore(address, before, { changed })).rejects.toMatchObject({ ...failed, properties });
    // By an administrator.
    await card.host.setVf(5, 0, { vlan: { id: 0 }, trust: false, rate: { minMbps: 0, maxMbps: 10 } });
    await expect(hardware.restore(address, before, { changed })).rejects.toMatchObject({
      ...failed,
      properties: ['vf.spoofCheck', 'vf.hardwareAddress'],
    });
    await card.host.setVf(5, 0, { spoofCheck: true, hardwareAddress: '00:00:00:00:00:00' });
    await hardware.restore(address, before, { changed });
  });

  it('leaves the VF unrestored while its PF does not report it', async () => {
    const bench = openVf();
    const before = await empty(bench);
    bench.card.leftOut.add(0);
    await expect(bench.hardware.restore(bench.address, before, { changed: { trust: true } })).rejects.toMatchObject({
      code: 'restore-incomplete',
      properties: ['vf'],
    });
  });
});

describe('restoring a VF', () => {
  async function prepared(wanted: VfWanted = tenant) {
    const bench = openVf();
    const { card, hardware, address } = bench;
    const state = card.state(0);
    const before = await hardware.snapshot(address, { wanted });
    await hardware.configure(address, wanted, before);
    card.log.length = 0;
    const restore = () => hardware.restore(address, before, { changed: wanted.vf ?? {} });
    return { ...bench, state, restore };
  }

  it('is incomplete while its PF does not report the VF, but restores all other settings', async () => {
    const { card, state, restore } = await prepared({ ...tenant, driver: 'vfio-pci' });
    card.leftOut.add(0);
    await expect(restore()).rejects.toMatchObject({ code: 'restore-incomplete', properties: ['vf'] });
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
    card.leftOut.clear();
    card.listError = tooLong();
    await expect(restore()).rejects.toMatchObject({ code: 'restore-incomplete', properties: ['vf'] });
    expect(writes(card)).toEqual([]);
    card.listError = undefined;
    await restore();
    expect(card.state(0)).toEqual(state);
  });

  it.each<[keyof VfChange, VfWanted]>([
    ['vlan', tenant],
    ['trust', tenant],
    ['spoofCheck', tenant],
    ['linkState', { vf: { linkState: 'disable' } }],
    ['rate', { vf: { rate: { maxMbps: 100 } } }],
  ])("fails if the PF accepts the old %s but keeps the claim's value", async (property, wanted) => {
    const { card, state, restore } = await prepared(wanted);
    card.ignored.add(property);
    await expect(restore()).rejects.toMatchObject({
      code: 'restore-incomplete',
      device: vfAddress(0),
      properties: [`vf.${property}`],
      message: `${vfAddress(0)} could not be restored: vf.${property}`,
    });
    card.ignored.clear();
    await restore();
    expect(card.state(0)).toEqual(state);
  });

  it('fails while the VF still has the administrative MAC of the claim', async () => {
    for (const hardwareAddress of [undefined, '02:bb:00:00:00:09']) {
      const bench = openVf({ info: hardwareAddress === undefined ? {} : { hardwareAddress } });
      const { card, hardware, address } = bench;
      const vf = { hardwareAddress: mac };
      const before = await hardware.snapshot(address, { wanted: { vf } });
      await hardware.configure(address, { vf }, before);
      card.ignored.add('hardwareAddress');
      await expect(hardware.restore(address, before, { changed: vf })).rejects.toMatchObject({
        code: 'restore-incomplete',
        properties: expect.arrayContaining(['vf.hardwareAddress']),
      });
      card.ignored.clear();
      await hardware.restore(address, before, { changed: vf });
      expect(card.info(0)?.hardwareAddress).toBe(hardwareAddress);
    }
  });
});

describe('configuring a VF', () => {
  it.each<[keyof VfChange, VfWanted]>([
    ['vlan', tenant],
    ['trust', tenant],
    ['hardwareAddress', { vf: { hardwareAddress: mac } }],
    ['rate', { vf: { rate: { maxMbps: 100 } } }],
  ])('fails if the PF accepts a %s without effect', async (property, wanted) => {
    const { card, hardware, address } = openVf();
    const before = await hardware.snapshot(address, { wanted });
    card.ignored.add(property);
    await expect(hardware.configure(address, wanted, before)).rejects.toMatchObject({
      code: 'property-refused',
      device: vfAddress(0),
      properties: [property],
      retriable: true,
      message: expect.stringContaining(`cannot set ${property} of VF 0`),
    });
    card.ignored.clear();
    await hardware.configure(address, wanted, before);
  });

  it("fails if the PF does not keep the MAC of the VF's interface for user space", async () => {
    const { card, hardware, address } = openVf();
    const before = await hardware.snapshot(address, { wanted: { driver: 'vfio-pci' } });
    card.ignored.add('hardwareAddress');
    await expect(hardware.configure(address, { driver: 'vfio-pci' }, before)).rejects.toMatchObject({
      code: 'property-refused',
      properties: ['hardwareAddress'],
    });
    expect(card.driverOf(vfAddress(0))).toBe('igbvf');
  });

  it('accepts a rate that the card rounded', async () => {
    const { card, hardware, address } = openVf({ info: { minTxRateMbps: 0, maxTxRateMbps: 1_000 } });
    const { setVf } = card.host;
    card.host.setVf = async (pf, vf, { rate }) =>
      setVf(pf, vf, { rate: { minMbps: 0, maxMbps: 50 * Math.round((rate?.maxMbps ?? 0) / 50) } });
    const wanted = { vf: { rate: { maxMbps: 120 } } };
    const before = await hardware.snapshot(address, { wanted });
    await hardware.configure(address, wanted, before);
    expect(card.info(0)?.maxTxRateMbps).toBe(100);
    await hardware.restore(address, before, { changed: wanted.vf });
    expect(card.info(0)?.maxTxRateMbps).toBe(1_000);
  });

  it.each([
    ['a rate far from the wanted rate', 5_000, 700],
    ['no limit', 120, 0],
    ['a limit', 0, 700],
  ])('fails if the card sets %s instead of the wanted rate', async (_which, maxMbps, found) => {
    const { card, hardware, address } = openVf({ info: { minTxRateMbps: 0, maxTxRateMbps: 1_000 } });
    const { setVf } = card.host;
    card.host.setVf = async (pf, vf) => setVf(pf, vf, { rate: { minMbps: 0, maxMbps: found } });
    const wanted = { vf: { rate: { maxMbps } } };
    const before = await hardware.snapshot(address, { wanted });
    await expect(hardware.configure(address, wanted, before)).rejects.toMatchObject({
      code: 'property-refused',
      properties: ['rate'],
      cause: { code: 'no-effect' },
    });
  });

  it.each([
    ['a minimum above the old maximum', { minTxRateMbps: 0, maxTxRateMbps: 100 }, { minMbps: 400 }, [400, 0]],
    ['a maximum below the old minimum', { minTxRateMbps: 500, maxTxRateMbps: 0 }, { maxMbps: 400 }, [0, 400]],
    ['a minimum below the old maximum', { minTxRateMbps: 0, maxTxRateMbps: 600 }, { minMbps: 400 }, [400, 600]],
    ['a maximum above the old minimum', { minTxRateMbps: 300, maxTxRateMbps: 0 }, { maxMbps: 400 }, [300, 400]],
    ['the maximum to unlimited', { minTxRateMbps: 300, maxTxRateMbps: 600 }, { maxMbps: 0 }, [300, 0]],
  ] as const)('sets %s, and restores the old rates afterwards', async (_which, info, rate, rates) => {
    const { card, hardware, address } = openVf({ info });
    const wanted = { vf: { rate } };
    const before = await hardware.snapshot(address, { wanted });
    await hardware.configure(address, wanted, before);
    expect([card.info(0)?.minTxRateMbps, card.info(0)?.maxTxRateMbps]).toEqual(rates);
    await hardware.restore(address, before, { changed: wanted.vf });
    expect(card.info(0)).toMatchObject(info);
  });
});

describe('VfHardware.info', () => {
  it('queries a PF once for all VFs that are read together, and again after a change', async () => {
    const { card, hardware, clock } = openVf({ vfs: 16 });
    const { vfInfos } = card.host;
    let requests = 0;
    card.host.vfInfos = async (index) => {
      requests++;
      return await vfInfos(index);
    };
    const all = Array.from({ length: 16 }, (_, index) => card.address(index));
    for (const address of all) await hardware.info(address);
    await Promise.all(all.map((address) => hardware.info(address)));
    expect(requests).toBe(1);
    const before = await hardware.snapshot(card.address(3));
    await hardware.configure(card.address(3), { vf: { vlan: { id: 9 } } }, before);
    expect(await hardware.info(card.address(3))).toMatchObject({ vlan: { id: 9 } });
    await card.host.setVf(5, 3, { vlan: { id: 8 } });
    await clock.sleep(200);
    expect(await hardware.info(card.address(3))).toMatchObject({ vlan: { id: 8 } });
  });

  it('waits once, not once for each VF, for a PF that stopped reporting its VFs', async () => {
    const { card, hardware, clock } = openVf({ vfs: 16 });
    for (let index = 0; index < 16; index++) card.leftOut.add(index);
    const startMs = clock.nowMs();
    for (let index = 0; index < 16; index++)
      await expect(hardware.info(card.address(index))).rejects.toMatchObject({ code: 'vf-state-unknown' });
    expect(clock.nowMs() - startMs).toBeLessThan(2_500);
    card.leftOut.clear();
    await clock.sleep(200);
    expect(await hardware.info(card.address(7))).toBeDefined();
    // One VF that is being reset, beside others that are listed, is waited for as before.
    card.leftOut.add(7);
    const sinceMs = clock.nowMs();
    await clock.sleep(200);
    await expect(hardware.info(card.address(7))).rejects.toMatchObject({ code: 'vf-state-unknown' });
    expect(clock.nowMs() - sinceMs).toBeGreaterThan(2_000);
  });

  it('is empty for a VF whose PF has no interface, and marks unknown values', async () => {
    const { card, hardware, address, clock } = openVf({ info: { vlan: { id: 7, priority: 0 } } });
    expect(await hardware.info(address)).toMatchObject({ vlan: { id: 7 } });
    await clock.sleep(200);
    card.leftOut.add(0);
    await expect(hardware.info(address)).rejects.toMatchObject(unknown);
    card.listError = tooLong();
    await expect(hardware.info(address)).rejects.toMatchObject({ ...unknown, cause: card.listError });
    expect(await hardware.info({ pciAddress: vfAddress(0) })).toBeUndefined();
  });
});
