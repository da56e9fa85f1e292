import type { V1Pod, V1ResourceSlice } from '@kubernetes/client-node';
import { afterAll, describe, expect, it } from 'vitest';
import type { ReleaseSite } from './release-site.ts';

const settled = { timeout: 60_000, interval: 500 };

/** The policy that the release is installed with: the port of the four VFs has bandwidth for two of them. */
export const bandwidthPolicy = { pfs: [{ select: {}, bandwidth: { guaranteedMbps: 4000, portMbps: 10_000 } }] };

/** Guarantees of VFs, which the scheduler counts. */
export function describeBandwidth(get: () => ReleaseSite): void {
  describe('guaranteed bandwidth', () => {
    const names = ['first', 'second', 'third'];
    const phasesOf = (pods: string[]) => pods.map((name) => get().find<V1Pod>('pod', name).status?.phase);
    afterAll(() => get().release(...names));

    it('is published for each VF and for the port that the VFs share', async () => {
      const slices = await get().node.list<V1ResourceSlice>('/apis/resource.k8s.io/v1/resourceslices');
      const guarantee = { bandwidth: { value: '4G' } };
      const devices = slices.flatMap(({ spec }) => spec.devices ?? []);
      expect(devices.map(({ capacity, consumesCounters = [] }) => [capacity, consumesCounters[0]?.counters])).toEqual(
        Array(4).fill([guarantee, guarantee]),
      );
      const ports = slices.flatMap(({ spec }) => spec.sharedCounters ?? []);
      expect(ports.map(({ counters }) => counters)).toEqual([{ bandwidth: { value: '10G' } }]);
    });

    it('limits the pods of a port although VFs are free: the next pod waits until another pod ends', async () => {
      const site = get();
      for (const name of names.slice(0, 2)) site.hold(name);
      await expect.poll(() => phasesOf(names.slice(0, 2)), settled).toEqual(['Running', 'Running']);
      site.hold('third');
      const reason = () =>
        site.kubectl('get', 'events', '--field-selector', 'involvedObject.name=third,reason=FailedScheduling');
      await expect.poll(reason, settled).toContain('cannot allocate all claims');
      expect(phasesOf(names)).toEqual(['Running', 'Running', 'Pending']);
      site.release('first');
      await expect.poll(() => phasesOf(names.slice(1)), settled).toEqual(['Running', 'Running']);
    });
  });
}
