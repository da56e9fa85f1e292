import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Cluster } from '../cluster.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { type NodePart, nodeParts, type RealNode } from '../node/real-node.ts';
import { createPods, expectServed, findPod, namesOf, notRunning, recovery, type VfPod } from '../vf-pods.ts';

/** How many pods are being created when a part of the node is killed. The storm has more. */
export const faultPods = 12;
/** Pods that come and go on a real node while parts of it are killed or replaced. */
export function describeFaults(get: GetCluster, getNode: () => RealNode): void {
  describe('faults of a node', () => {
    it('pods created while the kubelet is down run once it is back', { tags: 'oldest' }, async () => {
      const { cluster } = get();
      const { kubelet } = getNode();
      await kubelet.stop('SIGKILL');
      try {
        const pods = await createPods(cluster, 3);
        const nodes = () => Promise.all(pods.map(async ({ name }) => (await findPod(cluster, name))?.spec?.nodeName));
        await expect.poll(nodes, recovery).toEqual(pods.map(() => cluster.node.name));
        await kubelet.start();
        await expectServed(get(), pods);
      } finally {
        await kubelet.start();
      }
    });

    const inTurn = ['driver', 'container runtime', 'kubelet'] as const;
    const faults: { name: string; turns: readonly (readonly NodePart[])[] }[] = [
      { name: `the ${inTurn.join(', then the ')}`, turns: inTurn.map((part) => [part]) },
      { name: 'the API server', turns: [['API server']] },
      { name: 'all of them', turns: [nodeParts] },
    ];
    it.each(faults)(
      `${faultPods} pods run although $name is killed with SIGKILL during their creation`,
      { tags: 'oldest' },
      async ({ turns }) => {
        const { cluster } = get();
        const pods = await createPods(cluster, faultPods);
        const running = async () => faultPods - (await notRunning(cluster, pods)).length;
        for (const [turn, parts] of turns.entries()) {
          // In the middle: some pods run, the others are in all stages before that.
          await expect.poll(running, { ...recovery, interval: 50 }).toBeGreaterThan(2 + 3 * turn);
          await getNode().crash(...parts);
        }
        // The kubelet calls a runtime that was killed again after a pause; until then nothing is executed in a container.
        const execute = () => cluster.exec(pods[0]!.name, 'main', 'true').catch(() => undefined);
        await expect.poll(execute, recovery).toMatchObject({ exitCode: 0 });
        await expectServed(get(), pods);
      },
    );

    it('force-deleting pods, running or still being created, leaves nothing on the node', {
      tags: 'oldest',
    }, async () => {
      const { cluster } = get();
      const running = await createPods(cluster, 5);
      await expectServed(get(), running);
      const creating = await createPods(cluster, 5, 5);
      const all = [...running, ...creating];
      const uids = await Promise.all(all.map(async ({ name }) => (await findPod(cluster, name))?.metadata.uid));
      await cluster.removeWithClaims(namesOf(all), 0);
      // Their successors have the same names and addresses, and are created while the first ones end.
      const successors = await createPods(cluster, 10);
      // For an exec the kubelet looks up the container by the pod's name, so while both run it may take the wrong one.
      await expect.poll(() => runningSandboxes(getNode(), uids), recovery).toEqual([]);
      await expect.poll(() => recreateDropped(cluster, successors), recovery).toEqual([]);
      await expectServed(get(), successors);
    });

    it('after a reboot pods run again, each with the metadata of its new sandbox', async () => {
      const { cluster } = get();
      const node = getNode();
      const pods = await createPods(cluster, 5);
      await expectServed(get(), pods);
      const containers = async () =>
        Promise.all(
          pods.map(async ({ name }) => (await findPod(cluster, name))?.status?.containerStatuses?.[0]?.containerID),
        );
      const before = await containers();
      await node.reboot();
      // Until the kubelet has updated the status, the API server has the state before the reboot.
      const kept = async () => (await containers()).filter((id) => before.includes(id));
      await expect.poll(kept, recovery).toEqual([]);
      await expectServed(get(), pods);
      // Logs of all instances: the last one need not be the one that noticed the reboot.
      const log = globSync(`/var/log/pods/${cluster.target.driverNamespace}_netdra-*/*/*.log`)
        .map((path) => readFileSync(path, 'utf8'))
        .join('');
      const noticed = log.split('\n').filter((line) => line.includes('node rebooted'));
      expect(noticed, log).toHaveLength(5);
    });
  });
}

/** Sandboxes that the runtime lists as ready and that belong to one of these pods. */
async function runningSandboxes(node: RealNode, podUids: (string | undefined)[]): Promise<string[]> {
  const { items } = await node.runtime.cri.call('ListPodSandbox', {});
  return items.flatMap(({ id, state, metadata }) =>
    state === 'SANDBOX_READY' && podUids.includes(metadata.uid) ? [id] : [],
  );
}

/**
 * Recreates pods whose claim info the kubelet has dropped. It unprepares a claim by name, without comparing UIDs, so
 * unpreparing the claim of a force-deleted pod can drop that of its successor, which then gets no container until it is
 * deleted. Source: Kubernetes 1.36, `unprepareResources` in pkg/kubelet/cm/dra/manager.go.
 * @returns pods that do not run
 */
async function recreateDropped(cluster: Cluster, pods: VfPod[]): Promise<string[]> {
  const left = await notRunning(cluster, pods);
  const dropped = pods.filter(({ name }) =>
    left.some((text) => text.startsWith(`${name} `) && text.includes('unable to get claim info')),
  );
  for (const pod of dropped) {
    console.warn(`the kubelet has dropped the claim info of ${pod.name}: the pod is recreated`);
    await cluster.removeWithClaims([pod.name]);
    await createPods(cluster, 1, pods.indexOf(pod));
  }
  return left;
}
