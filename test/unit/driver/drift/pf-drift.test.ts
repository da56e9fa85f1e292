import { setImmediate } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { keptBy } from '../../../../src/driver/drift/drift.ts';
import { claimKey, formatDeviceKey } from '../../../../src/framework/metadata/index.ts';
import { NetlinkError } from '../../../../src/node/netlink/index.ts';
import { SimulatedControl } from '../../../../src/node/sriov/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';
import { DriftBench } from './drift-bench.ts';

const tenant = { vf: { vlan: 100, spoofCheck: true, trust: false, maxTxRate: 500 } };
/** What another program, or a reset of the card, makes of a VF. */
const reset = {
  vlan: { id: 0 },
  spoofCheck: false,
  trust: true,
  rate: { minMbps: 0, maxMbps: 0 },
} as const;

describe('PfDriftSweep', () => {
  it('restores VLAN, spoof check, trust and rates that the PF has lost, within one round', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    const prepared = structuredClone(bench.card.info(0));
    await bench.card.host.setVf(5, 0, reset);
    expect(bench.card.info(0)).not.toEqual(prepared);
    await bench.round();
    expect(bench.card.info(0)).toEqual(prepared);
    expect(bench.counts).toEqual(['vlan restored', 'spoofCheck restored', 'trust restored', 'rate restored']);
    expect(bench.events).toEqual([
      expect.stringMatching(
        /^SettingsRestored ResourceClaim c0: Device vf0 .*: vlan is none instead of 100, spoofCheck is off/,
      ),
      expect.stringMatching(/^SettingsRestored Pod app: /),
    ]);
    expect(bench.record.lost()).toEqual([]);
  });

  it('restores the settings and the pinned MAC of a VF in user space', async () => {
    using bench = new DriftBench();
    const { hardwareAddress } = bench.card.link(0)!;
    await bench.prepare(0, { driver: 'vfio-pci', ...tenant });
    await bench.card.host.setVf(5, 0, { ...reset, trust: false, hardwareAddress: '02:00:00:00:00:99' });
    await bench.round();
    expect(bench.card.info(0)).toMatchObject({ vlan: { id: 100 }, spoofCheck: true, hardwareAddress });
  });

  it('restores other VFs while the claim of one VF is locked', async () => {
    using bench = new DriftBench({ vfs: 3 });
    for (const vfIndex of [0, 1, 2]) {
      await bench.prepare(vfIndex, tenant);
      await bench.card.host.setVf(5, vfIndex, reset);
    }
    const vlans = () => [0, 1, 2].map((vfIndex) => bench.card.info(vfIndex)?.vlan?.id);
    const lock = await bench.locks.acquire(claimKey({ namespace: 'default', name: 'c0' }));
    const round = bench.round();
    await expect.poll(vlans).toEqual([undefined, 100, 100]);
    lock[Symbol.dispose]();
    await round;
    expect(vlans()).toEqual([100, 100, 100]);
  });

  it('reads the VF list of a PF at most four times even if all VFs lost their settings', async () => {
    const vfs = [...Array(12).keys()];
    using bench = new DriftBench({ vfs: vfs.length });
    for (const vfIndex of vfs) {
      await bench.prepare(vfIndex, tenant);
      await bench.card.host.setVf(5, vfIndex, reset);
    }
    const { vfInfos } = bench.card.host;
    let running = 0;
    let most = 0;
    bench.card.host.vfInfos = async (pf) => {
      most = Math.max(most, ++running);
      // Until all VFs that do not wait for others have asked.
      await setImmediate();
      running--;
      return await vfInfos(pf);
    };
    await bench.round();
    expect(vfs.map((vfIndex) => bench.card.info(vfIndex)?.vlan?.id)).toEqual(vfs.map(() => 100));
    expect(most).toBeLessThanOrEqual(4);
  });

  it('ignores settings that neither class nor claim names', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, { vf: { trust: true } });
    await bench.card.host.setVf(5, 0, { vlan: { id: 7 }, spoofCheck: false });
    await bench.round();
    expect(bench.card.info(0)).toMatchObject({ vlan: { id: 7 }, spoofCheck: false });
    expect(bench.events).toEqual([]);
  });

  it.each([
    ['leaves no room for the minimum and is removed', 1, 0],
    ['leaves room for the minimum and stays', 7_000, 7_000],
  ])('restores a lost minimum rate of a VF whose maximum rate %s', async (_which, found, kept) => {
    using bench = new DriftBench();
    await bench.prepare(0, { vf: { minTxRate: 6_000 } });
    await bench.card.host.setVf(5, 0, { rate: { minMbps: 0, maxMbps: found } });
    await bench.round();
    expect(bench.card.info(0)).toMatchObject({ minTxRateMbps: 6_000, maxTxRateMbps: kept });
    expect(bench.counts).toEqual(['rate restored']);
  });

  it('does not restore a link state that is disabled for a lost LACP partner', async () => {
    using bench = new DriftBench();
    const device = await bench.prepare(0, { vf: { linkState: 'auto' } });
    await bench.card.host.setVf(5, 0, { linkState: 'disable' });
    const [claim] = bench.store.claims();
    bench.store.putClaim({ ...claim!, devices: [{ ...device, isDisabledForLacp: true }] });
    await bench.round();
    expect(bench.card.info(0)?.linkState).toBe('disable');
  });

  it.each([
    [
      'that is not in a pod',
      ({ store }: DriftBench) => {
        const [device] = store.claim('u0')!.devices;
        store.setAttachments('u0', new Map([[formatDeviceKey(device!), undefined]]));
      },
    ],
    ['whose claim is being unprepared', ({ store }: DriftBench) => store.setState(['u0'], 'unpreparing')],
  ] as const)('does not touch a VF %s', async (_which, change) => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    change(bench);
    await bench.card.host.setVf(5, 0, reset);
    await bench.round();
    expect(bench.card.info(0)?.vlan).toBeUndefined();
  });

  it("reports, but does not restore, settings that the class's CNI plugin can change", async () => {
    using bench = new DriftBench();
    await bench.prepare(0, { attach: 'cni', cni: { type: 'sriov' }, ...tenant });
    await bench.card.host.setVf(5, 0, { vlan: { id: 7 } });
    await bench.round();
    expect(bench.card.info(0)?.vlan?.id).toBe(7);
    expect(bench.record.lost()).toEqual([]);
    expect(bench.record.conditionOf('u0', 'vf0')).toMatchObject({
      type: 'Configured',
      status: 'False',
      reason: 'SettingsChanged',
      message: expect.stringContaining('vlan is 7 instead of 100: with attach cni, netdra leaves the setting as it is'),
    });
    expect(bench.counts).toEqual(['vlan reported']);
  });

  it('restores settings of the class even if the claim itself sets attach', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, { attach: 'observe', ...tenant }, { isAttachOfClaim: true });
    await bench.card.host.setVf(5, 0, { vlan: { id: 0 } });
    await bench.round();
    expect(bench.card.info(0)?.vlan?.id).toBe(100);
  });

  it('reports, but does not restore, a MAC that a trusted VF has chosen', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, { macAddress: '02:00:00:00:00:50', vf: { trust: true } });
    await bench.card.host.setVf(5, 0, { hardwareAddress: '02:00:00:00:00:51' });
    await bench.round();
    expect(bench.card.info(0)?.hardwareAddress).toBe('02:00:00:00:00:51');
    expect(bench.record.lost()).toEqual([]);
    expect(bench.record.conditionOf('u0', 'vf0')).toMatchObject({ status: 'False', reason: 'SettingsChanged' });
  });

  it('does not report a difference that other work on the claim has repaired in the meantime', async () => {
    using bench = new DriftBench();
    const device = await bench.prepare(0, tenant);
    await bench.card.host.setVf(5, 0, reset);
    const work = await bench.locks.acquire(claimKey({ namespace: 'default', name: 'c0' }));
    const round = bench.round();
    await vi.waitUntil(() => bench.locks.waiting === 1);
    await bench.control.setAgain(device, { vlan: { id: 100 }, spoofCheck: true, trust: false }, device.before!);
    work[Symbol.dispose]();
    await round;
    expect(bench.counts).toEqual(['rate restored']);
  });

  it('can be stopped while other work holds the lock of the claim', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    await bench.card.host.setVf(5, 0, reset);
    using _work = await bench.locks.acquire(claimKey({ namespace: 'default', name: 'c0' }));
    const stop = new AbortController();
    const round = bench.round(stop.signal);
    await vi.waitUntil(() => bench.locks.waiting === 1);
    stop.abort();
    await expect(round).rejects.toThrow('aborted');
  });

  it('reads the VF list of a PF once, however many of its VFs are in pods', async () => {
    using bench = new DriftBench({ vfs: 8 });
    for (let vf = 0; vf < 8; vf++) await bench.prepare(vf, tenant);
    await bench.round();
    expect(bench.lists).toBe(1);
  });
});

describe('PfDriftSweep, if restored settings are rejected or lost again', () => {
  it('reports rejected settings by one event and a condition, and retries with growing pauses', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    await bench.card.host.setVf(5, 0, { vlan: { id: 0 } });
    bench.card.ignored.add('vlan');
    for (let rounds = 0; rounds < 20; rounds++) await bench.round();
    const attempts = bench.card.log.filter((entry) => entry === 'setVf 0 vlan').length - 2;
    expect(attempts).toBeGreaterThan(5);
    expect(attempts).toBeLessThan(12);
    expect(bench.events.filter((event) => event.startsWith('SettingsLost'))).toHaveLength(2);
    expect(bench.counts).toEqual(['vlan lost']);
    expect(bench.record.lost()).toEqual([
      {
        pciAddress: '0000:01:10.0',
        message: expect.stringMatching(/vlan is none instead of 100: restoring it failed/),
      },
    ]);
    expect(bench.record.conditionOf('u0', 'vf0')).toMatchObject({ status: 'False', reason: 'SettingsLost' });
    bench.card.ignored.clear();
    for (let rounds = 0; rounds < 6; rounds++) await bench.round();
    expect(bench.card.info(0)?.vlan?.id).toBe(100);
    expect(bench.record.lost()).toEqual([]);
    expect(bench.record.conditionOf('u0', 'vf0')).toMatchObject({ status: 'True', reason: 'AsRequested' });
    expect(bench.conditions).toEqual(['c0', 'c0']);
  });

  it('restores a lost VLAN in the next round although the PF keeps rejecting the rate of the VF', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    await bench.card.host.setVf(5, 0, { rate: reset.rate });
    bench.card.ignored.add('rate');
    for (let rounds = 0; rounds < 20; rounds++) await bench.round();
    for (let losses = 0; losses < 5; losses++) {
      await bench.card.host.setVf(5, 0, { vlan: reset.vlan });
      await bench.round();
      expect(bench.card.info(0)?.vlan?.id).toBe(100);
      for (let rounds = 0; rounds < 10; rounds++) await bench.round();
    }
    expect(bench.record.lost()).toEqual([
      {
        pciAddress: '0000:01:10.0',
        message: expect.stringMatching(
          /^[^:]*: rate is 0 to 0 Mbit\/s instead of 0 to 500 Mbit\/s: restoring it failed/,
        ),
      },
    ]);
    expect(bench.events.filter((event) => event.startsWith('SettingsLost Pod'))).toHaveLength(1);
  });

  it('reports the settings that it has restored apart from those that the PF rejects', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    await bench.card.host.setVf(5, 0, reset);
    bench.card.ignored.add('rate');
    await bench.round();
    expect(bench.counts).toEqual(['vlan restored', 'spoofCheck restored', 'trust restored', 'rate lost']);
    expect(bench.record.lost()).toEqual([
      { pciAddress: '0000:01:10.0', message: expect.stringMatching(/^[^:]*: rate is [^,]*: restoring it failed/) },
    ]);
  });

  it('reports that another program keeps changing a setting although the PF rejects another one', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    for (let rounds = 0; rounds < 5; rounds++) {
      bench.card.ignored.clear();
      await bench.card.host.setVf(5, 0, { spoofCheck: false, rate: reset.rate });
      bench.card.ignored.add('rate');
      await bench.round();
      expect(bench.card.info(0)?.spoofCheck).toBe(true);
    }
    const [{ message } = { message: '' }] = bench.record.lost();
    expect(message).toContain('restoring it failed');
    expect(message).toContain('another program keeps changing this setting');
  });

  it('still restores the settings of other VFs of the PF', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    await bench.prepare(1, tenant);
    for (const vf of [0, 1]) await bench.card.host.setVf(5, vf, { spoofCheck: false });
    bench.card.leftOut.add(0);
    await bench.round();
    expect(bench.card.info(1)?.spoofCheck).toBe(true);
  });

  it('reports a condition while another program keeps changing the settings', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    for (let rounds = 0; rounds < 5; rounds++) {
      await bench.card.host.setVf(5, 0, { spoofCheck: false });
      await bench.round();
      expect(bench.card.info(0)?.spoofCheck).toBe(true);
    }
    expect(bench.record.lost()).toEqual([
      { pciAddress: '0000:01:10.0', message: expect.stringContaining('another program keeps changing this setting') },
    ]);
    expect(bench.events.filter((event) => event.startsWith('SettingsLost Pod'))).toHaveLength(1);
    for (let rounds = 0; rounds < 12; rounds++) await bench.round();
    expect(bench.record.lost()).toEqual([]);
  });
});

describe('PfDriftSweep, when a PF does not report a VF', () => {
  it('treats unknown settings as lost, and reports a condition in the second round', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    bench.card.leftOut.add(0);
    await bench.round();
    expect(bench.record.lost()).toEqual([]);
    await bench.round();
    expect(bench.record.lost()).toEqual([
      { pciAddress: '0000:01:10.0', message: expect.stringContaining('vlan is unknown instead of 100') },
    ]);
    bench.card.leftOut.clear();
    await bench.round();
    expect(bench.record.lost()).toEqual([]);
  });

  it('reports a condition if the PF cannot be queried', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, tenant);
    bench.card.listError = new NetlinkError('netlink-refused', 'too long', { errno: 'EMSGSIZE' });
    await bench.round();
    await bench.round();
    expect(bench.record.lost()).toHaveLength(1);
  });
});

it('PfDriftSweep reports a condition while a VF in user space is bound to another driver', async () => {
  using bench = new DriftBench();
  await bench.prepare(0, { driver: 'vfio-pci' });
  await bench.round();
  expect([bench.record.lost(), bench.events]).toEqual([[], []]);
  await bench.binding.bind('0000:01:10.0', 'igbvf');
  for (let rounds = 0; rounds < 2; rounds++) await bench.round();
  expect(bench.record.lost()).toEqual([
    {
      pciAddress: '0000:01:10.0',
      message: expect.stringContaining(
        'driver is igbvf instead of vfio-pci: another program has bound the VF to this driver, or the card was reset',
      ),
    },
  ]);
  expect(bench.events.filter((event) => event.startsWith('SettingsLost'))).toHaveLength(2);
  expect(bench.counts).toContain('driver lost');
  await bench.binding.bind('0000:01:10.0', 'vfio-pci');
  await bench.round();
  expect(bench.record.lost()).toEqual([]);
});

describe('PfDriftSweep if a card rounds a rate', () => {
  it('reports no drift, even after a restart of the driver', async () => {
    using bench = new DriftBench();
    await bench.prepare(0, { vf: { maxTxRate: 333 } });
    await bench.card.host.setVf(5, 0, { rate: { minMbps: 0, maxMbps: 330 } });
    bench.card.ignored.add('rate');
    bench.restart();
    for (let rounds = 0; rounds < 5; rounds++) await bench.round();
    expect(bench.events).toEqual([]);
    expect(bench.record.lost()).toEqual([]);
    // Tried once, to know.
    expect(bench.card.log.filter((entry) => entry === 'setVf 0 rate')).toHaveLength(3);
  });

  it.each([
    ['minimum', { minTxRate: 400 }, { minMbps: 0, maxMbps: 700 }],
    ['maximum', { maxTxRate: 400 }, { minMbps: 300, maxMbps: 0 }],
    ['maximum near the lost rate', { maxTxRate: 4_000 }, { minMbps: 0, maxMbps: 1_000 }],
  ])('reports a rate as lost, not rounded, if the VF has no %s', async (_which, vf, rate) => {
    using bench = new DriftBench();
    await bench.prepare(0, { vf });
    await bench.card.host.setVf(5, 0, { rate });
    bench.card.ignored.add('rate');
    await bench.round();
    expect(bench.counts).toEqual(['rate lost']);
    expect(bench.record.lost()).toHaveLength(1);
  });
});

it('PfDriftSweep for a PF that cannot set VF MACs ignores the MAC of a VF in user space', async () => {
  using bench = new DriftBench({ unsupported: ['hardwareAddress'] });
  await bench.prepare(0, { driver: 'vfio-pci', vf: { vlan: 100 } });
  for (let rounds = 0; rounds < 3; rounds++) await bench.round();
  expect(bench.record.lost()).toEqual([]);
  expect(bench.events).toEqual([]);
  await bench.card.host.setVf(5, 0, { vlan: { id: 0 } });
  for (let rounds = 0; rounds < 3; rounds++) await bench.round();
  expect(bench.card.info(0)?.vlan).toEqual({ id: 100, priority: 0, protocol: '802.1q' });
  expect(bench.record.lost()).toEqual([]);
});

describe('keptBy', () => {
  it('expects no MAC address at the PF of a simulated VF, which has it in the pod only', async () => {
    const before = await new SimulatedControl().snapshot();
    const place = { pfAddress: 'fe00:00:00.0', vfIndex: 0 };
    expect(keptBy(storedDevice({ ...place, before, config: { macAddress: '02:00:00:00:00:01' } }))).toEqual({});
  });
});
