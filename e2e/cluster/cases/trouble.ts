import type { V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import type { CaseOptions, GetCluster, TestCluster } from '../describe-cluster.ts';
import { createPodWithClaim, testClaim, testPod } from '../objects.ts';

/** Time for an event to appear, or for the kubelet to update a status. */
const slow = { timeout: 60_000, interval: 250 };

/** Events with a reason, with their objects. */
async function notes({ cluster }: TestCluster, reason: string): Promise<string[]> {
  const events = await cluster.events();
  return events
    .filter((each) => each.reason === reason)
    .map(({ regarding: { kind, name }, note }) => `${kind} ${name}: ${note}`)
    .sort();
}

/** The first device in the status of the pod's container: the name of its claim, and its health. */
async function healthOf({ cluster }: TestCluster, pod: string) {
  const { status } = (await cluster.find<V1Pod>('Pod', pod)) ?? {};
  const [resource] = status?.containerStatuses?.[0]?.allocatedResourcesStatus ?? [];
  return [resource?.name, ...(resource?.resources ?? []).map(({ health, message }) => ({ health, message }))];
}

export function describeTrouble(get: GetCluster, { simulated }: CaseOptions): void {
  describe('when something goes wrong', () => {
    it('a claim that cannot be prepared has events with the reason on claim and pod', async () => {
      const { cluster } = get();
      // The API server accepts it: only the driver compares names of interfaces.
      const requests = ['one', 'two'].map((name) => ({ name, config: { interfaceName: 'net1' } }));
      await createPodWithClaim(cluster, 'slip', requests);
      const text = `Devices of claim ${cluster.namespace}/slip cannot be prepared: invalid VFConfig .*cannot have the name net1, which .* has`;
      await expect
        .poll(() => notes(get(), 'DeviceNotPrepared'), slow)
        .toEqual([expect.stringMatching(`^Pod slip: ${text}`), expect.stringMatching(`^ResourceClaim slip: ${text}`)]);
      await cluster.remove('Pod', 'slip');
    });

    it('a vanished VF is reported on claim and pod, and is unhealthy in the container status', async ({ skip }) => {
      skip(!simulated, 'a real VF is not taken away from its card');
      const { cluster, nodeFiles, view } = get();
      await cluster.create(testClaim(cluster, 'lost', [{ name: 'vf' }]));
      // Under the claim's own name, the only one that kubelet 1.34 supports; that of 1.35 knows claims of templates only. Source:
      // UpdateAllocatedResourcesStatus.
      await cluster.create(testPod(cluster, 'lost', { claims: [{ name: 'lost', resourceClaimName: 'lost' }] }));
      await cluster.waitUntilRunning('lost');
      const features = await cluster.features();
      const expectHealth = async (health: string, text?: string) => {
        if (!features.has('ResourceHealthStatus') || (await cluster.minorVersion()) === 35) return;
        const message = features.has('ResourceHealthStatusMessage') ? text : undefined;
        await expect.poll(() => healthOf(get(), 'lost'), slow).toEqual(['claim:lost', { health, message }]);
      };
      await expectHealth('Healthy');
      const [device] = (await view('lost').metadata('resourceclaims/lost', 'vf')).devices;
      const offered = (await cluster.devices()).length;
      await nodeFiles.loseSimulatedVf(device?.attributes?.['resource.kubernetes.io/pciBusID']?.string ?? '');
      const text = `Device ${device?.name} .* of claim ${cluster.namespace}/lost is no longer on the node`;
      await expect
        .poll(() => notes(get(), 'DeviceLost'), slow)
        .toEqual([expect.stringMatching(`^Pod lost: ${text}`), expect.stringMatching(`^ResourceClaim lost: ${text}`)]);
      await expectHealth('Unhealthy', 'not found on the node any more: the pod has to be replaced');
      await expect.poll(async () => (await cluster.devices()).length, slow).toBe(offered - 1);
      // After a restart the simulation has all its VFs again.
      await cluster.remove('Pod', 'lost');
      await cluster.restartDriver();
      await expect.poll(async () => (await cluster.devices()).length, slow).toBe(offered);
    });

    it('new pods avoid a card without a carrier until its carrier returns, even without device taints', {
      tags: 'newest',
    }, async ({ skip }) => {
      skip(!simulated, 'the cable of a real card is not pulled');
      const { cluster, nodeFiles } = get();
      const key = `${cluster.target.driver}/no-carrier`;
      const hasTaints = (await cluster.features()).has('DRADeviceTaints');
      const all = await cluster.devices();
      const pf = all[0]?.attributes?.pfName?.string ?? '';
      const own = all.filter(({ attributes }) => attributes?.pfName?.string === pf).length;
      const count = async () => {
        const devices = (await cluster.devices()).filter(({ attributes }) => attributes?.pfName?.string === pf);
        return [devices.length, devices.filter(({ taints }) => taints?.[0]?.key === key).length];
      };
      await nodeFiles.setSimulatedPf(pf, 'down');
      await expect.poll(count, slow).toEqual(hasTaints ? [own, own] : [0, 0]);
      const selectors = [`device.attributes["${cluster.target.driver}"].pfName == "${pf}"`];
      await createPodWithClaim(cluster, 'avoids', [{ name: 'vf', selectors }]);
      const pod = async () => (await cluster.find<V1Pod>('Pod', 'avoids'))?.status?.conditions;
      const message = expect.stringContaining('cannot allocate all claims');
      await expect.poll(pod, slow).toMatchObject([{ type: 'PodScheduled', status: 'False', message }]);
      await nodeFiles.setSimulatedPf(pf, 'up');
      await expect.poll(count, slow).toEqual([own, 0]);
      await cluster.waitUntilRunning('avoids');
      await cluster.remove('Pod', 'avoids');
    });
  });
}
