import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { formatDeviceKey } from '../../../../src/framework/metadata/index.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { SriovError, type VfSnapshot } from '../../../../src/node/sriov/index.ts';
import { buildPod } from '../../../doubles/objects.ts';
import { allocated, fromClaim, fromClass } from './driver-bench.ts';
import { bench, cdiFiles, deviceNodes, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

describe('a repeated prepare', () => {
  it('reuses the stored attachment, original state and configuration of a VF, and does not configure it again', async () => {
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ vf: { trust: true } })] });
    await bench.prepare(claim);
    const [device] = bench.store.claim(claim.identity.uid)?.devices ?? [];
    const host = { name: 'v', mtuBytes: 1, up: true };
    const attachment = { podNamespace: 'default', podName: 'app', podUid: 'p', sandboxId: 's', netnsPath: '/n', host };
    bench.store.setAttachments(claim.identity.uid, new Map([[formatDeviceKey(device as StoredDevice), attachment]]));
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect(bench.store.claim(claim.identity.uid)?.devices).toMatchObject([
      { attachment, config: { vf: { trust: true } }, before: { driver: 'igbvf' } },
    ]);
    // Once prepared, nothing is done again: the VF may be in its pod.
    expect([bench.control.count('read'), bench.control.count('apply')]).toEqual([1, 1]);
  });

  it('does not enable a VF link that is down because its LACP partner is lost', async () => {
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ vf: { trust: true, linkState: 'auto' } })] });
    await bench.prepare(claim);
    const stored = bench.store.claim(claim.identity.uid)!;
    bench.store.putClaim({
      ...stored,
      devices: stored.devices.map((device) => ({ ...device, isDisabledForLacp: true })),
    });
    await bench.prepare(claim);
    expect(bench.control.calls.at(-2)).toBe('apply 0000:00:00.1 {"vf":{"trust":true}}');
    expect(bench.store.claim(claim.identity.uid)?.devices[0]?.isDisabledForLacp).toBe(true);
  });

  it('returns the same CDI IDs, and writes the CDI specs with device files again', async () => {
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ driver: 'vfio-pci' })] });
    const first = await bench.prepare(claim);
    const nodes = deviceNodes(claim, 'dev-1');
    const [file = ''] = cdiFiles();
    rmSync(join(bench.cdiDir, file)); // as after a reboot
    expect(await bench.prepare(claim)).toEqual(first);
    expect(deviceNodes(claim, 'dev-1')).toEqual(nodes);
  });
});

describe('keepHostConfig', () => {
  const config = [fromClass({ keepHostConfig: true })];

  it('makes prepare read the host configuration of a whole NIC before it changes the NIC', async () => {
    await bench.prepare(allocated('c', ['nic-1'], { config }));
    await bench.prepare(allocated('d', ['dev-1']));
    expect(bench.control.options).toEqual([
      { wanted: { vf: {} }, byOthers: false, withHostConfig: true },
      { wanted: { vf: {} }, byOthers: false },
    ]);
  });

  it('is refused for VFs', async () => {
    const expected = 'keepHostConfig: is for whole NICs, and device dev-1 of request vf is a VF';
    expect(await bench.prepare(allocated('c', ['nic-1', 'dev-1'], { config }))).toMatchObject({
      error: { code: 'config-invalid', message: expect.stringContaining(expected) },
    });
    expect(bench.control.calls).toEqual([]);
  });
});

describe('VFs of a claim', () => {
  const trusted = { config: [fromClass({ vf: { trust: true } })] };

  it('have their snapshot stored before they are configured, and are restored by unprepare', async () => {
    const fields = { vf: { trust: true, vlan: 7, qos: 3 }, macAddress: '02:00:00:00:00:0A' };
    const claim = allocated('c', ['dev-1'], { config: [fromClass(fields)] });
    let stateAtApply: unknown;
    bench.control.onCall = (call) => {
      if (call.startsWith('apply')) stateAtApply = bench.store.claim(claim.identity.uid);
    };
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect(stateAtApply).toMatchObject({
      state: 'preparing',
      devices: [{ before: { driver: 'igbvf', vf: { trust: false } } }],
    });
    await bench.unprepare(claim);
    expect(bench.control.calls).toEqual([
      'read 0000:00:00.1',
      'apply 0000:00:00.1 {"vf":{"hardwareAddress":"02:00:00:00:00:0a","vlan":{"id":7,"priority":3},"trust":true}}',
      'access 0000:00:00.1',
      'restore 0000:00:00.1 {"driver":"igbvf","vf":{"trust":false}}',
    ]);
  });

  const link = { name: 'ens1v0' } as VfSnapshot['link'] & object;
  it.each([
    ['changes nothing', {}, { driver: 'igbvf', link }, false],
    ['needs an interface', {}, { driver: 'igbvf' }, true],
    ['changes properties', { vf: { trust: true } }, { driver: 'igbvf', link }, true],
    ['needs another driver', { driver: 'vfio-pci' }, { driver: 'igbvf', link }, true],
    ['has a simulated VF', {}, { driver: 'veth' }, false],
  ] as const)(
    'are stored before they are configured, with a snapshot if the VF can be changed: the claim %s',
    async (_what, fields, before, isStored) => {
      const claim = allocated('c', ['dev-1'], { config: [fromClass(fields)] });
      bench.control.snapshot = async () => ({ vf: {}, ...before });
      let stored: StoredDevice | undefined;
      bench.control.onCall = (call) => {
        if (call.startsWith('apply')) stored = bench.store.claim(claim.identity.uid)?.devices[0];
      };
      await bench.prepare(claim);
      expect([stored?.name, stored?.before !== undefined]).toEqual(['dev-1', isStored]);
      expect(bench.store.claim(claim.identity.uid)?.devices[0]?.before).toEqual({ vf: {}, ...before });
    },
  );

  it.each([
    [{ vf: { minTxRate: 10 } }, { vf: { rate: { minMbps: 10 } } }],
    [{ vf: { maxTxRate: 100 } }, { vf: { rate: { maxMbps: 100 } } }],
    [{ vf: { minTxRate: 10, maxTxRate: 100 } }, { vf: { rate: { minMbps: 10, maxMbps: 100 } } }],
    [{ vf: { spoofCheck: true } }, { vf: { spoofCheck: true } }],
    [{ vf: { linkState: 'enable' } }, { vf: { linkState: 'enable' } }],
    [{ vf: { vlan: 0 } }, { vf: { vlan: { id: 0, priority: 0 } } }],
    [{ vf: { vlan: 9, vlanProto: '802.1ad' } }, { vf: { vlan: { id: 9, priority: 0, protocol: '802.1ad' } } }],
    [{ driver: 'kernel' }, { vf: {}, driver: 'default' }],
    [{ driver: 'mlx5_vfio_pci' }, { vf: {}, driver: 'mlx5_vfio_pci' }],
  ])('are configured with exactly what %j requests', async (fields, wanted) => {
    await bench.prepare(allocated('c', ['dev-1'], { config: [fromClass(fields)] }));
    expect(bench.control.calls[1]).toBe(`apply 0000:00:00.1 ${JSON.stringify(wanted)}`);
  });

  it('stay with a claim whose prepare failed midway, and keep their first snapshot in a retry', async () => {
    const claim = allocated('c', ['dev-1', 'dev-2', 'dev-3'], trusted);
    const error = new Error('card says no');
    bench.control.failures.set('apply 0000:00:00.2', error);
    expect(await bench.prepare(claim)).toEqual({ error });
    expect(bench.store.claim(claim.identity.uid)).toMatchObject({
      state: 'preparing',
      devices: [1, 2, 3].map((index) => ({ name: `dev-${index}`, before: { vf: { trust: false } } })),
    });
    // No other claim may take the devices that are still untouched: the retry needs them.
    expect(await bench.prepare(allocated('other', ['dev-3']))).toMatchObject(refusal('device-in-use'));
    bench.control.failures.clear();
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect(bench.store.claim(claim.identity.uid)?.state).toBe('prepared');
    expect(['1', '2', '3'].map((index) => bench.control.count(`read 0000:00:00.${index}`))).toEqual([1, 1, 1]);
    await bench.unprepare(claim);
    expect(bench.control.calls.filter((call) => call.startsWith('restore'))).toEqual(
      [1, 2, 3].map((index) => `restore 0000:00:00.${index} {"driver":"igbvf","vf":{"trust":false}}`),
    );
  });

  it('are released if preparing the claim failed before anything was changed', async () => {
    bench.control.failures.set('read 0000:00:00.2', new Error('unplugged'));
    expect(await bench.prepare(allocated('c', ['dev-1', 'dev-2'], trusted))).toMatchObject({
      error: expect.any(Error),
    });
    expect(bench.store.claims()).toEqual([]);
  });

  it('are withheld after their claim has ended until they can be restored', async () => {
    const claim = allocated('c', ['dev-1'], trusted);
    await bench.prepare(claim);
    bench.control.failures.set('restore', new Error('busy'));
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.store.claims()).toEqual([]);
    expect(bench.store.unrestored()).toMatchObject([
      { device: { name: 'dev-1', before: { driver: 'igbvf' } }, reason: 'busy' },
    ]);
    expect(bench.logger.messages('error')).toEqual(['cannot restore a VF: no claim gets the VF until it is restored']);
    const next = allocated('next', ['dev-1'], trusted);
    expect(await bench.prepare(next)).toMatchObject(refusal('device-unrestored'));
    bench.control.failures.clear();
    await bench.restoreAll();
    expect(bench.store.unrestored()).toEqual([]);
    expect(await bench.prepare(next)).toEqual({ devices: [] });
  });

  it('are logged once for each reason why they cannot be restored', async () => {
    const claim = allocated('c', ['dev-1'], trusted);
    await bench.prepare(claim);
    for (const reason of ['busy', 'gone']) {
      bench.control.failures.set('restore', new Error(reason));
      if (reason === 'busy') await bench.unprepare(claim);
      bench.logger.lines.length = 0;
      for (let round = 0; round < 3; round++) await bench.restoreAll();
      const expected = reason === 'busy' ? [] : [expect.stringMatching(/^cannot restore a VF yet/)];
      expect(bench.logger.messages('warn')).toEqual(expected);
    }
  });

  it('are not restored a second time if another driver instance restored them meanwhile', async () => {
    const claim = allocated('c', ['dev-1'], trusted);
    await bench.prepare(claim);
    bench.control.failures.set('restore', new Error('busy'));
    await bench.unprepare(claim);
    bench.control.failures.clear();
    const locks = new KeyedMutex();
    const other = Promise.withResolvers<void>();
    const held = locks.run('0000:00:00.1', () => other.promise);
    const waiting = bench.restoreAll(locks);
    await bench.restoreAll();
    expect(await bench.prepare(allocated('next', ['dev-1'], trusted))).toEqual({ devices: [] });
    const calls = [...bench.control.calls];
    other.resolve();
    await Promise.all([held, waiting]);
    expect(bench.control.calls).toEqual(calls);
  });

  it.each([
    ['no driver', {}],
    ['driver kernel', { driver: 'kernel' }],
  ])('are withdrawn until they can get an interface, if their class sets %s', async (_, fields) => {
    const claim = allocated('c', ['dev-1'], { config: [fromClass(fields)] });
    const error = new SriovError('interface-missing', '0000:00:00.1 has no interface: its driver iavf has made none');
    bench.control.failures.set('apply', error);
    expect(await bench.prepare(claim)).toMatchObject({ error });
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.store.unrestored()).toMatchObject([{ device: { name: 'dev-1' }, reason: error.message }]);
    const next = allocated('next', ['dev-1']);
    expect(await bench.prepare(next)).toMatchObject({
      error: { code: 'device-unrestored', message: expect.stringContaining(error.message) },
    });
    await bench.restoreAll();
    expect(bench.store.unrestored()).toHaveLength(1);
    bench.control.failures.clear();
    bench.control.calls.length = 0;
    await bench.restoreAll();
    expect(bench.control.calls).toEqual([
      'apply 0000:00:00.1 {"driver":"default"}',
      'restore 0000:00:00.1 {"driver":"igbvf","vf":{"trust":false}}',
    ]);
    expect(bench.store.unrestored()).toEqual([]);
    expect(await bench.prepare(next)).toEqual({ devices: [] });
    expect(bench.control.calls).toContain('apply 0000:00:00.1 {"vf":{}}');
  });

  it('are withheld if they cannot get an interface, even if the first unprepare fails for another reason', async () => {
    const claim = allocated('c', ['dev-1']);
    bench.control.failures.set('apply', new SriovError('interface-missing', '0000:00:00.1 has no interface'));
    await bench.prepare(claim);
    rmSync(bench.cdiDir, { recursive: true, force: true });
    writeFileSync(bench.cdiDir, 'not a directory');
    expect(await bench.unprepare(claim)).toBeInstanceOf(Error);
    rmSync(bench.cdiDir);
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.store.unrestored()).toMatchObject([{ device: { name: 'dev-1', lacksInterface: true } }]);
  });

  it('are restored only in those settings that their claim changed', async () => {
    const config = [
      fromClass({ macAddress: '02:00:00:00:00:AA', vf: { vlan: 100, maxTxRate: 10 }, driver: 'vfio-pci' }),
    ];
    const claim = allocated('c', ['dev-1'], { config });
    await bench.prepare(claim);
    const vf = { hardwareAddress: '02:00:00:00:00:aa', vlan: { id: 100, priority: 0 }, rate: { maxMbps: 10 } };
    expect(bench.control.options).toEqual([{ wanted: { driver: 'vfio-pci', vf }, byOthers: false }]);
    bench.control.failures.set('restore', new Error('busy'));
    await bench.unprepare(claim);
    bench.control.failures.clear();
    await bench.restoreAll();
    expect(bench.control.options.slice(1)).toEqual([{ changed: vf }, { changed: vf }]);
  });

  it('are stored with the information whether claim or class chose the attach mode', async () => {
    const observe = { attach: 'observe' } as const;
    const claims = [
      allocated('claim', ['dev-1'], { config: [fromClass({ vf: { vlan: 100 } }), fromClaim(observe)] }),
      allocated('class', ['dev-2'], { config: [fromClass(observe)] }),
      allocated('neither', ['dev-3'], { config: [fromClass({ vf: { vlan: 100 } })] }),
    ];
    await bench.prepareAll(claims);
    const chosen = bench.store
      .claims()
      .map(({ identity, devices: [device] }) => [identity.name, device?.isAttachOfClaim]);
    expect(Object.fromEntries(chosen)).toEqual({ claim: true, class: false, neither: undefined });
  });

  it.each([{ attach: 'observe' }, { attach: 'cni', cni: { cniVersion: '1.0.0', name: 'n', type: 'sriov' } }])(
    'have a snapshot of all settings that another component can change, for %j',
    async (config) => {
      await bench.prepare(allocated('c', ['dev-1'], { config: [fromClass(config)] }));
      expect(bench.control.options).toEqual([{ wanted: { vf: {} }, byOthers: true }]);
    },
  );
});

describe('a claim whose unprepare was interrupted', () => {
  // Found by the simulation: the VF had no kernel driver, and its claim asked for none.
  it('has its VF restored before it is prepared again, whatever its new configuration', async () => {
    const claim = allocated('c', ['dev-1']);
    await bench.prepare(claim);
    bench.store.setState([claim.identity.uid], 'unpreparing');
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect([bench.control.count('restore 0000:00:00.1'), bench.released]).toEqual([1, ['dev-1']]);
    expect(bench.store.claim(claim.identity.uid)).toMatchObject({ state: 'prepared', devices: [{ before: {} }] });
  });

  it('is not prepared while its VF cannot be restored', async () => {
    const claim = allocated('c', ['dev-1']);
    await bench.prepare(claim);
    bench.store.setState([claim.identity.uid], 'unpreparing');
    bench.control.failures.set('restore', new Error('card says no'));
    expect(await bench.prepare(claim)).toMatchObject(refusal('device-unrestored'));
    bench.control.failures.clear();
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
  });
});

describe('a claim that was reallocated while prepared', () => {
  async function prepareForUserSpace() {
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ driver: 'vfio-pci' })] });
    await bench.prepare(claim);
    return claim;
  }

  it('gets its new configuration applied to the same device', async () => {
    const { identity } = await prepareForUserSpace();
    expect(await bench.prepare({ ...allocated('c', ['dev-1']), identity })).toEqual({ devices: [] });
    expect(bench.control.drivers.get('0000:00:00.1')).toBe('igbvf');
  });

  it('loses the metadata of its old device before that device is restored', async () => {
    const { identity } = await prepareForUserSpace();
    expect(bench.control.count('withdraw')).toBe(0);
    bench.control.calls.length = 0;
    expect(await bench.prepare({ ...allocated('c', ['dev-2']), identity })).toEqual({ devices: [] });
    expect(bench.control.calls.slice(0, 2)).toEqual(['withdraw c', expect.stringMatching(/^restore 0000:00:00\.1 /)]);
  });

  // Found by the simulation: the kubelet does not ask again for a claim that has passed to another pod.
  it.each([
    [
      'belongs to another claim',
      'unpreparing',
      () => bench.prepare(allocated('holder', ['dev-2'], { pods: [buildPod('h')] })),
    ],
    ['cannot be read', 'preparing', () => bench.control.failures.set('read 0000:00:00.2', new Error('no answer'))],
  ] as const)('stays stored while its new device %s, and is prepared by a retry', async (_, state, obstruct) => {
    const { identity } = await prepareForUserSpace();
    await obstruct();
    const anew = { ...allocated('c', ['dev-2']), identity };
    expect(await bench.prepare(anew)).toMatchObject({ error: expect.any(Error) });
    expect(bench.store.claim(identity.uid)?.state).toBe(state);
    expect(bench.control.drivers.get('0000:00:00.1')).toBe('igbvf');
    bench.control.failures.clear();
    const holder = bench.store.claims().find(({ identity: { name } }) => name === 'holder');
    if (holder !== undefined) await bench.unprepare(holder);
    expect(await bench.prepare(anew)).toEqual({ devices: [] });
    expect(bench.store.claims().flatMap(({ devices }) => devices.map(({ name }) => name))).toEqual(['dev-2']);
  });

  it('can swap devices with another reallocated claim', async () => {
    const [one, other] = [allocated('one', ['dev-1']), allocated('other', ['dev-2'], { pods: [buildPod('h')] })];
    for (const claim of [one, other]) await bench.prepare(claim);
    const oneAnew = { ...one, ...allocated('one', ['dev-2']), identity: one.identity };
    const otherAnew = { ...allocated('other', ['dev-1'], { pods: [buildPod('h')] }), identity: other.identity };
    expect(await bench.prepare(oneAnew)).toMatchObject(refusal('device-in-use'));
    expect(await bench.prepare(otherAnew)).toEqual({ devices: [] });
    expect(await bench.prepare(oneAnew)).toEqual({ devices: [] });
    const held = bench.store.claims().map(({ identity, devices }) => [identity.name, devices.map(({ name }) => name)]);
    expect(held).toEqual([
      ['one', ['dev-2']],
      ['other', ['dev-1']],
    ]);
  });

  it('keeps its old device if that device cannot be restored and another claim holds the new device', async () => {
    const { identity } = await prepareForUserSpace();
    await bench.prepare(allocated('holder', ['dev-2'], { pods: [buildPod('h')] }));
    bench.control.failures.set('restore 0000:00:00.1', new Error('card says no'));
    const anew = { ...allocated('c', ['dev-2']), identity };
    expect(await bench.prepare(anew)).toMatchObject(refusal('device-in-use'));
    expect(bench.store.claim(identity.uid)).toMatchObject({ state: 'unpreparing', devices: [{ name: 'dev-1' }] });
  });

  it('keeps its old device reserved while that device cannot be restored', async () => {
    const { identity } = await prepareForUserSpace();
    bench.control.failures.set('restore 0000:00:00.1', new Error('card says no'));
    expect(await bench.prepare({ ...allocated('c', ['dev-2']), identity })).toEqual({ devices: [] });
    expect(bench.store.unrestored()).toMatchObject([{ device: { name: 'dev-1' }, reason: 'card says no' }]);
    expect(await bench.prepare(allocated('other', ['dev-1']))).toMatchObject(refusal('device-unrestored'));
  });
});
