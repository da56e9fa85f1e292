import { describe, expect, it } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { StatusReport, toDeviceStatuses } from '../../../../src/driver/sandbox/status-report.ts';
import type { DeviceStatus } from '../../../../src/framework/claimstatus/index.ts';
import { defined } from '../../../../src/lib/defined.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

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
    const [first, second] = toDeviceStatuses(storedClaim({ devices: shares }), () => undefined);
    expect([first, second]).toMatchObject([
      { device: 'dev-1', shareId: 'a' },
      { device: 'dev-1', shareId: 'b' },
    ]);
  });
});

describe('StatusReport', () => {
  const gone = 'device dev-2 is no longer in the network namespace of pod apps/web-0';
  const ready = { device: 'dev-1', ready: true, reason: 'Attached' };
  const notReady = (message: string) => ({ device: 'dev-2', ready: false, reason: 'NotAttached', message });

  /** @param described names of the devices whose metadata is written */
  function open(described: Set<string>, claims: readonly StoredClaim[] = [claim]) {
    let written: readonly DeviceStatus[] = [];
    const report = new StatusReport({
      store: storedClaims(() => claims),
      metadata: {
        read: (identity, request) => {
          const devices = claim.devices.filter(({ name }) => described.has(name));
          const networkData = { interfaceName: 'net1' };
          return {
            claim: identity,
            generation: 1,
            request,
            devices: devices.map((each) => ({ ...each, networkData })),
          };
        },
      },
      writer: {
        set: (_, statuses) => {
          written = statuses;
        },
      },
      numa: { conditionOf: () => undefined },
      drift: { conditionOf: () => undefined },
    });
    return { report, written: () => written };
  }

  it('reports the reason of a failure only on VFs whose metadata is withdrawn', () => {
    const { report, written } = open(new Set(['dev-1']));
    report.report(claim.identity, true, { reason: gone, lost: [] });
    expect(written()).toMatchObject([{ ...ready, networkData: { interfaceName: 'net1' } }, notReady(gone)]);
  });

  it('keeps the reason of a failure until the claim is served, even if another VF changes', () => {
    const described = new Set(['dev-1']);
    const { report, written } = open(described);
    report.report(claim.identity, true, { reason: gone, lost: [] });
    report.report(claim.identity);
    expect(written()).toMatchObject([ready, notReady(gone)]);
    described.add('dev-2');
    report.served(claim.identity);
    report.report(claim.identity);
    expect(written()).toMatchObject([ready, { device: 'dev-2', ready: true }]);
    described.delete('dev-2');
    report.report(claim.identity);
    expect(written()).toMatchObject([ready, notReady('the device is not in the network of the pod')]);
  });

  it.each([
    ['of all VFs if the attempt reached none, although their earlier metadata is still there', undefined, [1, 2]],
    ['of all VFs if none has left and all have metadata', [], [1, 2]],
    ['of a VF that has left but whose metadata could not be withdrawn', claim.devices.slice(1), [2]],
  ] as const)('reports the reason of a failure %s', (_, lost, failed) => {
    const { report, written } = open(new Set(['dev-1', 'dev-2']));
    report.report(claim.identity, true, { reason: gone, ...defined({ lost }) });
    const expected = [1, 2].map((index) => {
      const isFailed = failed.some((each) => each === index);
      return { ...(isFailed ? notReady(gone) : ready), device: `dev-${index}` };
    });
    expect(written()).toMatchObject(expected);
    expect(written().filter(({ networkData }) => networkData !== undefined)).toHaveLength(2 - failed.length);
  });

  it.each([
    ['of all VFs', undefined, [1, 2]],
    ['of a VF that has left', claim.devices.slice(1), [2]],
  ] as const)(
    'repeats the reason of a failure %s in later reports, although the VFs have metadata',
    (_, lost, failed) => {
      const { report, written } = open(new Set(['dev-1', 'dev-2']));
      report.report(claim.identity, true, { reason: 'cannot be read', ...defined({ lost }) });
      const reported = written();
      report.report(claim.identity);
      expect(written()).toEqual(reported);
      expect(written().flatMap(({ device, message }) => (message === 'cannot be read' ? [device] : []))).toEqual(
        failed.map((index) => `dev-${index}`),
      );
    },
  );

  it('reports the reason of a failed attempt on all VFs if the attempt reached none of them', () => {
    const { report, written } = open(new Set(['dev-1']));
    report.report(claim.identity, true, { reason: gone });
    expect(written()).toMatchObject([{ ...notReady(gone), device: 'dev-1' }, notReady(gone)]);
  });
});
