import { globSync, readFileSync } from 'node:fs';
import type { KubernetesObject, V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import type { Cluster } from '../cluster.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { describeDriver } from '../node/driver.ts';
import { nodeParts, type RealNode } from '../node/real-node.ts';
import { testPod, testTemplate } from '../objects.ts';
import {
  createPods,
  expectServed,
  expectTruth,
  findPod,
  namesOf,
  notRunning,
  recovery,
  type VfPod,
} from '../vf-pods.ts';

/** How many pods are being created when a part of the node is killed. The storm has more. */
export const faultPods = 12;
/** Pods that come and go on a real node while parts of it are killed or replaced. */
export function describeFaults(get: GetCluster, getNode: () => RealNode): void {
  describe('faults of a node', () => {
    it('pods that are created while the kubelet is down run when it is back', { tags: 'oldest' }, async () => {
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

    const faults = [
      ...nodeParts.map((part) => ({ name: `the ${part}`, parts: [part] })),
      { name: 'all of them', parts: nodeParts },
    ];
    it.each(faults)(
      `${faultPods} pods run, though $name is killed with SIGKILL while they are created`,
      { tags: 'oldest' },
      async ({ parts }) => {
        const { cluster } = get();
        const pods = await createPods(cluster, faultPods);
        const running = async () => faultPods - (await notRunning(cluster, pods)).length;
        // In the middle: some pods run, the others are in all stages before that.
        await expect.poll(running, { ...recovery, interval: 50 }).toBeGreaterThan(2);
        await getNode().crash(...parts);
        await expectServed(get(), pods);
      },
    );

    it('force deletion of pods that run, or are being created, leaves nothing behind', { tags: 'oldest' }, async () => {
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

    // A minute if the machine is not busy.
    const update = { timeout: 4 * recovery.timeout, tags: 'newest' };
    it('pods come and go during a rolling update, with two instances of the driver', update, async () => {
      const { cluster, view } = get();
      const node = getNode();
      const rollout = (...args: string[]) =>
        node.kubectl('rollout', ...args, 'daemonset/netdra', '--namespace', cluster.target.driverNamespace);
      const [before] = await createPods(cluster, 1);
      await expectServed(get(), [before!]);
      const read = () => view('pod-0').read('cat', view('pod-0').metadataPath('resourceclaims/pod-0', 'vf'));
      const document = await read();
      expect(rollout('restart')).toContain('restarted');
      let pods = await createPods(cluster, 3, 1);
      await expect.poll(() => node.driverPids().length, recovery).toBe(2);
      // A kubelet that could not prepare a claim while no instance was registered tries again after one to one and a half minutes.
      const endsAt = performance.now() + 2 * recovery.timeout;
      for (let first = 4; ; first = (first % 60) + 3) {
        const status = rollout('status', '--watch=false');
        if (status.includes('successfully rolled out')) break;
        const leftMs = endsAt - performance.now();
        if (leftMs < 0) throw new Error(`the update has not ended: ${status}${describeDriver(node)}`);
        // docs/troubleshooting.md, "A rolling update stands still": a change of the DaemonSet makes its controller look again.
        if (leftMs < recovery.timeout) {
          const nudge = ['annotate', 'daemonset/netdra', `netdra.dev/nudged=${first}`, '--overwrite'];
          console.warn(node.kubectl(...nudge, '--namespace', cluster.target.driverNamespace));
        }
        const next = await createPods(cluster, 3, first);
        await expectServed(get(), [...pods, ...next]);
        await cluster.removeWithClaims(namesOf(pods));
        pods = next;
      }
      await expectServed(get(), pods);
      expect(await read()).toBe(document);
    });

    it('a drained node has all its VFs back, and serves pods again when it is uncordoned', {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      const node = getNode();
      const config = { interfaceName: 'net1', addresses: ['192.0.2.1/24'] };
      await cluster.create(testTemplate(cluster, 'drained', [{ name: 'vf', config }]));
      await cluster.create(replicaSet(cluster, 'drained', 5));
      const list = async () =>
        (await cluster.list<V1Pod>('Pod')).filter(({ metadata: { name } }) => name.startsWith('drained-'));
      const phases = async () => (await list()).map(({ status }) => status?.phase);
      await expect.poll(phases, recovery).toEqual(Array(5).fill('Running'));
      const evicted = await list();
      const drain = ['--pod-selector=app=drained', '--grace-period=1', '--timeout=60s'];
      try {
        expect(node.kubectl('drain', cluster.node.name, ...drain)).toContain(`node/${cluster.node.name} drained`);
        await expect.poll(phases, recovery).toEqual(Array(5).fill('Pending'));
        await get().expectRestored();
      } finally {
        node.kubectl('uncordon', cluster.node.name);
      }
      await expect.poll(phases, recovery).toEqual(Array(5).fill('Running'));
      const pods = await list();
      expect(pods.filter(({ metadata }) => evicted.some((each) => each.metadata.uid === metadata.uid))).toEqual([]);
      for (const { metadata } of pods) await expectTruth(get(), metadata.name, 'resourceclaimtemplates/nic');
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

/** Pods with one claim each, made from a template, that do not tolerate cordoned nodes. */
function replicaSet(cluster: Cluster, name: string, replicas: number): V1ReplicaSet & KubernetesObject {
  const claims = [{ name: 'nic', resourceClaimTemplateName: name }];
  const { spec } = testPod(cluster, name, { claims, restartPolicy: 'Always' });
  const { tolerations: _, ...podSpec } = spec!;
  const labels = { app: name };
  const template = { metadata: { labels }, spec: podSpec };
  return {
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    metadata: { name, namespace: cluster.namespace },
    spec: { replicas, selector: { matchLabels: labels }, template },
  };
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
