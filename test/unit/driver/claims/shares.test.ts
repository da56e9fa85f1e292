import { describe, expect, it } from 'vitest';
import { allocated, fromClass } from './driver-bench.ts';
import { bench, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

describe('an allocation result with a share of a device', () => {
  const shareId = '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001';

  it('is stored with the share, and prepare returns the share', async () => {
    const requests = [{ name: 'vf', devices: [{ device: 'dev-1', shareID: shareId }] }];
    const claim = allocated('shared', [], { requests, config: [fromClass({ driver: 'vfio-pci' })] });
    expect(await bench.prepare(claim)).toMatchObject({ devices: [{ deviceName: 'dev-1', shareId }] });
    expect(bench.store.claim(claim.identity.uid)?.devices).toMatchObject([{ name: 'dev-1', shareId }]);
  });

  it('is returned with the share even if the claim has only adminAccess', async () => {
    const requests = [{ name: 'watch', devices: [{ device: 'dev-1', shareID: shareId, adminAccess: true }] }];
    expect(await bench.prepare(allocated('monitor', [], { requests }))).toMatchObject({ devices: [{ shareId }] });
  });

  it('is rejected if the claim has another share of the same VF', async () => {
    const shares = [shareId, '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0002'];
    const requests = shares.map((shareID, index) => ({ name: `vf-${index}`, devices: [{ device: 'dev-1', shareID }] }));
    expect(await bench.prepare(allocated('both', [], { requests }))).toMatchObject(
      refusal('device-in-use', expect.stringContaining('the claim has it allocated twice')),
    );
    expect([bench.store.claims(), bench.control.calls]).toEqual([[], []]);
  });
});
