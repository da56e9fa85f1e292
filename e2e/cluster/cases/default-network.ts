import { describe, expect, it } from 'vitest';
import type { ClaimView } from '../../../src/cli/claims.ts';
import type { Finding } from '../../../src/cli/finding.ts';
import type { ResourceClaim } from '../../../src/framework/kube/index.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { nodePaths, type RealNode } from '../node/real-node.ts';
import { createPodWithClaim } from '../objects.ts';
import { startExample } from './examples.ts';
import { readJson } from './tools.ts';

/** Pods in whose network namespace the runtime makes no interface: `lo` and their VFs are all they have. */
export function describeDefaultNetwork(get: GetCluster, getNode: () => RealNode, simulate: string): void {
  describe('pods without a default network', () => {
    it('the pod of no-default-network.yaml has its VF as eth0, with an IPAM address and the default route', async ({
      skip,
    }) => {
      const { cluster, view } = get();
      const { nodeInfo } = await cluster.nodeStatus();
      const isContainerd = nodeInfo?.containerRuntimeVersion.startsWith('containerd:') === true;
      skip(!isContainerd, 'CRI-O has one network configuration for all runtime handlers');
      await using _kinds = {
        async [Symbol.asyncDispose]() {
          await cluster.remove('DeviceClass', 'only-network');
          await cluster.remove('RuntimeClass', 'no-default-network');
        },
      };
      await startExample(cluster, 'no-default-network.yaml');
      const { status } = await cluster.waitUntilRunning('no-default-network');
      // What the CNI configuration reports, and no interface has.
      expect(status?.podIPs).toEqual([{ ip: '192.0.2.1' }]);
      const container = view('no-default-network', 'app');
      const links = await container.links();
      expect(links.map(({ ifname }) => ifname)).toEqual(['lo', 'eth0']);
      const networkData = expectedNetworkData(links[1]);
      expect(networkData.ips).toEqual([expect.stringMatching(/^198\.51\.100\.\d+\/24$/)]);
      const routes = JSON.parse(await container.read('ip', '-j', 'route', 'show', 'default'));
      expect(routes).toMatchObject([{ gateway: '198.51.100.1', dev: 'eth0' }]);
      const read = () => container.metadata('resourceclaimtemplates/nic', 'vf');
      const document = await read();
      expect(document).toMatchObject({ generation: 1, devices: [{ networkData }] });
      const claimed = async () => (await cluster.list<ResourceClaim>('ResourceClaim'))[0]?.status?.devices;
      await expect.poll(claimed, { timeout: 20_000 }).toMatchObject([{ networkData }]);

      const [claim] = await readJson<ClaimView[]>('claims', `--kubelet-plugins-dir=${nodePaths.kubeletPlugins}`);
      const place = { in: 'pod', interfaceName: 'eth0', pod: `${cluster.namespace}/no-default-network` };
      expect(claim?.devices).toMatchObject([{ place, ips: networkData.ips }]);
      const { runtime, controlPlane } = getNode();
      const flags = [`--cri-socket=${runtime.socketPath}`, `--kubeconfig=${controlPlane.adminKubeconfig}`];
      const findings = await readJson<Finding[]>('doctor', ...flags, `--simulate=${simulate}`);
      expect(findings.filter(({ level }) => level === 'problem')).toEqual([]);
      await cluster.restartDriver();
      expect(await read()).toEqual(document);
      await cluster.remove('Pod', 'no-default-network');
    });

    it('are the only pods whose VF can be named eth0: others wait, and an event says why', {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      await createPodWithClaim(cluster, 'taken', [{ name: 'vf', config: { interfaceName: 'eth0' } }]);
      const reasons = async () =>
        (await cluster.events()).flatMap(({ reason, note }) => (reason === 'DeviceNotAttached' ? note : []));
      const why = `cannot have the name eth0 in pod ${cluster.namespace}/taken: an interface there has that name`;
      await expect
        .poll(reasons, { timeout: 30_000 })
        .toContainEqual(expect.stringMatching(new RegExp(`${why}.*the default network of the pod has eth0`)));
    });
  });
}
