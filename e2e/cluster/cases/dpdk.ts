import { describe, expect, it } from 'vitest';
import type { ResourceClaim } from '../../../src/framework/kube/index.ts';
import type { CaseOptions, GetCluster } from '../describe-cluster.ts';
import { testPod, testTemplate } from '../objects.ts';

/**
 * Command of a DPDK application: the tool inserts the EAL arguments and sets the variables. Simulated VFs stay with the
 * kernel, and DPDK uses their interfaces. Without huge pages, so that it runs on any node; then every page is a mapping
 * of its own, of which vfio allows 65,535.
 */
function dpdkCommand(simulated: boolean): string[] {
  const script = `echo "expected $NETDRA_NIC_VF_MAC"
printf 'show port info 0\\nquit\\n' |
  dpdk-testpmd "$@" --no-huge -m 64 --iova-mode=va --no-telemetry -- -i --total-num-mbufs=2048 2>&1`;
  const options = simulated ? ['--af-packet'] : [];
  return ['netdra-metadata', 'exec', '--lcores', ...options, 'nic/vf', '--', 'sh', '-euc', script, 'sh', '{eal-args}'];
}

export function describeDpdk(get: GetCluster, { simulated }: CaseOptions): void {
  describe('a DPDK application', { tags: 'newest' }, () => {
    it('finds its VF with nothing but the metadata file', async () => {
      const { cluster } = get();
      const { kernel, dpdk } = cluster.target.classes;
      const deviceClassName = simulated ? kernel : dpdk;
      const config = { interfaceName: 'dpdk0', addresses: ['192.0.2.42/24'] };
      await cluster.create(testTemplate(cluster, 'dpdk-nic', [{ name: 'vf', deviceClassName, config }]));
      const claims = [{ name: 'nic', resourceClaimTemplateName: 'dpdk-nic' }];
      // Packet sockets for simulated VFs; real ones are used through vfio, which pins memory.
      const capabilities = { drop: ['ALL'], add: [simulated ? 'NET_RAW' : 'IPC_LOCK'] };
      const containers = [{ name: 'testpmd', command: dpdkCommand(simulated), capabilities }];
      await cluster.create(testPod(cluster, 'dpdk', { claims, containers }));
      const pod = await cluster.waitUntilEnded('dpdk');
      await expect.poll(() => cluster.log('dpdk', 'testpmd'), { timeout: 30_000 }).toMatch(/MAC address|error/i);
      const log = await cluster.log('dpdk', 'testpmd');
      expect(pod.status?.phase, log).toBe('Succeeded');
      const [, expected] = /^expected (.*)$/m.exec(log) ?? [];
      const [, used] = /MAC address: ([0-9A-F:]{17})/.exec(log) ?? [];
      expect(expected, log).toMatch(/^[0-9a-f:]{17}$/);
      expect(used?.toLowerCase(), log).toBe(expected);
      // The claim's status names the same device.
      const claim = pod.status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? '';
      const { status } = (await cluster.find<ResourceClaim>('ResourceClaim', claim)) ?? {};
      const addresses = (status?.devices ?? []).map(({ networkData }) => networkData?.hardwareAddress);
      // Kubernetes deallocates the claims of a pod that has ended.
      expect([[], [expected]]).toContainEqual(addresses);
    });
  });
}
