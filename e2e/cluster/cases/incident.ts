import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { listIncidents } from '../../../src/app/incidents/incident-files.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { runFaultyDriver } from '../node/faulty-driver.ts';
import { nodePaths, type RealNode } from '../node/real-node.ts';
import { createPods, expectServed, findPod, recovery } from '../vf-pods.ts';
import { linkPlugin, runProgram } from './tools.ts';

const simulatePath = fileURLToPath(new URL('../../../test/simulation/run.ts', import.meta.url));
const bug = 'end-of-an-old-sandbox';

/** What a driver with a bug has recorded, and what the simulation makes of it. */
export function describeIncident(get: GetCluster, getNode: () => RealNode): void {
  describe('an incident', () => {
    it('is collected by kubectl netdra bundle, and replayed to the violation that the node has seen', {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      const node = getNode();
      const { cri } = node.runtime;
      const dataDir = join(nodePaths.kubeletPlugins, cluster.target.driver);
      const earlier = listIncidents(dataDir);
      await using _faulty = await runFaultyDriver(node, bug);
      const pods = await createPods(cluster, 2);
      await expectServed(get(), pods);

      // The fault: someone stops the sandbox of a running pod, and removes it when the kubelet has made the next one.
      const uid = (await findPod(cluster, 'pod-0'))?.metadata.uid;
      const sandboxes = async () =>
        (await cri.call('ListPodSandbox', {})).items.filter((each) => each.metadata.uid === uid);
      const [first] = await sandboxes();
      const podSandboxId = first?.id ?? '';
      await cri.call('StopPodSandbox', { podSandboxId });
      // The kubelet, which removes old sandboxes once a minute, may have removed the first one by then.
      const hasNext = async () => (await sandboxes()).some(({ id }) => id !== podSandboxId);
      await expect.poll(hasNext, recovery).toBe(true);
      await expectServed(get(), pods);
      await cri.call('RemovePodSandbox', { podSandboxId });

      const incidents = () => listIncidents(dataDir).filter((name) => !earlier.includes(name));
      await expect.poll(incidents, recovery).toEqual([expect.stringMatching(/vf-taken-back\.jsonl$/)]);
      const out = join(node.dir, 'incident-bundle');
      const kubeconfig = `--kubeconfig=${node.controlPlane.adminKubeconfig}`;
      const bundle = await runProgram(linkPlugin(node), ['bundle', kubeconfig, `--out=${out}`, '-o', 'json']);
      expect(bundle).toMatchObject({ code: 0, stderr: '' });
      const { missing } = JSON.parse(bundle.stdout);
      expect(missing).toEqual([expect.stringMatching(/driver-previous\.log: .*not found/)]);

      const again = await runProgram(simulatePath, ['--bundle', out, '--planted', bug]);
      expect(again, again.stdout).toMatchObject({ code: 1, stderr: '' });
      expect(again.stdout).toMatch(
        /\nbroken: taken-away: driver-1 takes \S+ from the running pod in pod-\d-sandbox-\d\n$/,
      );
      const mended = await runProgram(simulatePath, ['--bundle', out]);
      expect(mended, mended.stdout).toMatchObject({ code: 0, stderr: '' });
      expect(mended.stdout).toMatch(/\notherwise than recorded: VFs of \S+: .*\n(.*\n)*no rule is broken\n$/);
    });
  });
}
