import { describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import type { CaseOptions, GetCluster, TestCluster } from '../describe-cluster.ts';
import { testClaim, testPod } from '../objects.ts';

/** Time for an event to appear. */
const eventTimeout = { timeout: 30_000, interval: 250 };

/** Events with a reason, with their objects. */
async function notes({ cluster }: TestCluster, reason: string): Promise<string[]> {
  const events = await cluster.events();
  return events
    .filter((each) => each.reason === reason)
    .map(({ regarding: { kind, name }, note }) => `${kind} ${name}: ${note}`)
    .sort();
}

export function describeTrouble(get: GetCluster, { simulated, admissionPolicies }: CaseOptions): void {
  describe('when something goes wrong', () => {
    if (admissionPolicies) {
      it('a claim that sets what only classes may is refused by the API server', async () => {
        const { cluster } = get();
        const claim = testClaim(cluster, 'greedy', [{ name: 'vf', config: { macAddress: '02:11:22:33:44:55' } }]);
        const tryIt = async () => {
          try {
            await cluster.create(claim);
          } catch (error) {
            return explain(error);
          }
          // Policies take effect shortly after they are installed.
          await cluster.remove('ResourceClaim', 'greedy');
          return 'it was taken';
        };
        const refusal = /macAddress of a VFConfig is for DeviceClasses; claims may not set it/;
        await expect.poll(tryIt, eventTimeout).toMatch(refusal);
      });
    }

    it('a claim that cannot be prepared says why, on the claim and on the pod', async () => {
      const { cluster } = get();
      // The API server accepts it: only the driver compares names of interfaces.
      const requests = ['one', 'two'].map((name) => ({ name, config: { interfaceName: 'net1' } }));
      await cluster.create(testClaim(cluster, 'slip', requests));
      await cluster.create(testPod(cluster, 'slip', { claims: [{ name: 'nic', resourceClaimName: 'slip' }] }));
      const text = `Devices of claim ${cluster.namespace}/slip cannot be prepared: invalid VFConfig .*cannot be net1, which .* is`;
      await expect
        .poll(() => notes(get(), 'DeviceNotPrepared'), eventTimeout)
        .toEqual([expect.stringMatching(`^Pod slip: ${text}`), expect.stringMatching(`^ResourceClaim slip: ${text}`)]);
      await cluster.remove('Pod', 'slip');
    });

    it('running pods keep what they have while the driver is replaced, and new ones get theirs', async () => {
      const { cluster, nodeFiles, view } = get();
      const start = async (name: string, address: string) => {
        const claim = await cluster.create(
          testClaim(cluster, name, [{ name: 'vf', config: { addresses: [address] } }]),
        );
        await cluster.create(testPod(cluster, name, { claims: [{ name: 'nic', resourceClaimName: name }] }));
        await cluster.waitUntilRunning(name);
        return claim;
      };
      const before = await start('before', '192.0.2.1/24');
      const seen = () => view('before').read('cat', view('before').metadataPath('resourceclaims/before', 'vf'));
      const document = await seen();
      const [device] = decodeStream(document).devices;
      await cluster.restartDriver();
      expect(await seen()).toBe(document);
      await start('after', '192.0.2.2/24');
      const { devices } = await view('after').metadata('resourceclaims/after', 'vf');
      expect(devices[0]?.networkData?.ips).toEqual(['192.0.2.2/24']);
      expect(devices[0]?.name).not.toBe(device?.name);
      // The new instance unprepares the claims that the old one prepared.
      await cluster.remove('Pod', 'before');
      await expect.poll(() => nodeFiles.ofClaim(before), { timeout: 60_000, interval: 250 }).toEqual([]);
    });

    if (simulated) {
      it('a VF that vanishes under a pod is reported on the claim and on the pod', async () => {
        const { cluster, nodeFiles, view } = get();
        await cluster.create(testClaim(cluster, 'lost', [{ name: 'vf' }]));
        await cluster.create(testPod(cluster, 'lost', { claims: [{ name: 'nic', resourceClaimName: 'lost' }] }));
        await cluster.waitUntilRunning('lost');
        const [device] = (await view('lost').metadata('resourceclaims/lost', 'vf')).devices;
        const offered = (await cluster.devices()).length;
        await nodeFiles.loseSimulatedVf(device?.attributes?.['resource.kubernetes.io/pciBusID']?.string ?? '');
        const text = `Device ${device?.name} .* of claim ${cluster.namespace}/lost is no longer on the node`;
        await expect
          .poll(() => notes(get(), 'DeviceLost'), eventTimeout)
          .toEqual([
            expect.stringMatching(`^Pod lost: ${text}`),
            expect.stringMatching(`^ResourceClaim lost: ${text}`),
          ]);
        await expect.poll(async () => (await cluster.devices()).length, eventTimeout).toBe(offered - 1);
        // After a restart the simulation has all its VFs again.
        await cluster.remove('Pod', 'lost');
        await cluster.restartDriver();
        await expect.poll(async () => (await cluster.devices()).length, eventTimeout).toBe(offered);
      });
    }
  });
}
