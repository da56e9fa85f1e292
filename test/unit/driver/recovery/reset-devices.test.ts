import { beforeEach, describe, expect, it } from 'vitest';
import { endEarlierBoots } from '../../../../src/driver/recovery/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { formatDeviceKey } from '../../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { storedAttachment } from '../../../doubles/stored-claims.ts';
import { allocated, fromClass } from '../claims/driver-bench.ts';
import { bench, useDriverBench } from '../claims/driver-hooks.ts';

const pci = '0000:00:00.1';
const wanted = { config: [fromClass({ driver: 'vfio-pci', vf: { vlan: 7, trust: true } })] };

useDriverBench();

/** The PF's VFs are switched off and on again: the kernel gives them their default driver, the PF knows no VLAN. */
function resetPf(): void {
  bench.control.drivers.clear();
  bench.control.calls.length = 0;
}

describe('the driver after a PF reset (sriov_numvfs 0, then N) while a VF is prepared', () => {
  let first: AllocatedClaim;
  beforeEach(async () => {
    first = allocated('c', ['dev-1'], wanted);
    await bench.prepare(first);
  });

  it('configures the VF again when the kubelet prepares it, and keeps its original state', async () => {
    resetPf();
    expect(await bench.prepare(first)).toMatchObject({ devices: [{}] });
    expect(bench.control.drivers.get(pci)).toBe('vfio-pci');
    expect(bench.control.count(`apply ${pci}`)).toBe(1);
    await bench.unprepare(first);
    expect(bench.control.calls.at(-1)).toBe(`restore ${pci} {"driver":"igbvf","vf":{"trust":false}}`);
  });

  it('configures the VF before it moves to its pod if the kubelet does not prepare the claim again', async () => {
    resetPf();
    const stored = bench.store.claim(first.identity.uid)!;
    await bench.driver.reconfigure(stored, stored.devices[0]!);
    expect(bench.control.drivers.get(pci)).toBe('vfio-pci');
  });

  it('does not configure a VF that is in its pod, or that another component moves', async () => {
    const stored = bench.store.claim(first.identity.uid)!;
    const [device] = stored.devices;
    bench.store.setAttachments(first.identity.uid, new Map([[formatDeviceKey(device!), storedAttachment()]]));
    resetPf();
    expect(await bench.prepare(first)).toMatchObject({ devices: [{}] });
    await bench.driver.reconfigure(stored, { ...device!, config: { ...device!.config, attach: 'observe' } });
    expect(bench.control.count('apply')).toBe(0);
  });

  it('reports a missing VF, and unprepares it without an error', async () => {
    bench.control.failures.set('apply', new Error('no such device'));
    expect(await bench.prepare(first)).toMatchObject({ error: { message: 'no such device' } });
    expect(await bench.unprepare(first)).toBeUndefined();
    expect(bench.store.claims()).toEqual([]);
  });
});

it('after a node reboot, the driver reads a VF before it configures it, and later restores that state', async () => {
  const claim = allocated('c', ['dev-1'], wanted);
  await bench.prepare(claim);
  const stored = bench.store.claim(claim.identity.uid)!;
  await endEarlierBoots({
    store: {
      claimsOfEarlierBoots: () => [stored],
      forgetUnrestoredOfEarlierBoots: () => undefined,
      putClaim: (after) => bench.store.putClaim(after),
      setAttachments: (uid, changes) => bench.store.setAttachments(uid, changes),
    },
    withdraw: async () => undefined,
    logger: new RecordingLogger(),
  });
  // After this boot the kernel has chosen another driver.
  bench.control.calls.length = 0;
  bench.control.drivers.set(pci, 'iavf');
  expect(await bench.prepare(claim)).toMatchObject({ devices: [{}] });
  expect([bench.control.count(`read ${pci}`), bench.control.count(`apply ${pci}`)]).toEqual([1, 1]);
  await bench.unprepare(claim);
  expect(bench.control.drivers.get(pci)).toBe('iavf');
});
