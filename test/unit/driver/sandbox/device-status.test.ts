import { describe, expect, it } from 'vitest';
import { toDeviceStatuses } from '../../../../src/driver/sandbox/status-report.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';

const place = { podNamespace: 'default', podName: 'app', sandboxId: 's1', podUid: 'pod', netnsPath: '/netns/s1' };
const device = (index: number) => storedDevice({ pciAddress: `0000:3b:02.${index}`, name: `dev-${index}` });
const claim = storedClaim({
  identity: { namespace: 'apps', name: 'fast-net', uid: 'u' },
  podUids: ['pod'],
  devices: [
    { ...device(1), attachment: place },
    { ...device(2), attachment: place },
  ],
});

describe('toDeviceStatuses', () => {
  it('reports for each VF whether it is in its pod', () => {
    expect(
      toDeviceStatuses(claim, ({ name }) =>
        name === 'dev-1' ? { networkData: { interfaceName: 'net1' } } : undefined,
      ),
    ).toMatchObject([
      { device: 'dev-1', ready: true, reason: 'Attached', networkData: { interfaceName: 'net1' } },
      { device: 'dev-2', ready: false, reason: 'NotAttached', message: 'the device is not in the network of the pod' },
    ]);
  });

  it('names the share of a device that is allocated several times', () => {
    const shares = ['a', 'b'].map((shareId) => ({ ...device(1), shareId }));
    const [first, second] = toDeviceStatuses(storedClaim({ devices: shares }), 'it failed');
    expect([first, second]).toMatchObject([
      { device: 'dev-1', shareId: 'a' },
      { device: 'dev-1', shareId: 'b' },
    ]);
  });

  it('reports no VF of a failed claim as ready, since its containers cannot start', () => {
    const reason = 'device dev-2 is no longer in the network namespace of pod apps/web-0';
    expect(toDeviceStatuses(claim, reason)).toMatchObject(
      [1, 2].map((index) => ({ device: `dev-${index}`, ready: false, reason: 'NotAttached', message: reason })),
    );
  });
});
