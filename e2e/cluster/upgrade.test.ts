import { join } from 'node:path';
import type { V1Node } from '@kubernetes/client-node';
import { expect, it } from 'vitest';
import { Cluster } from './cluster.ts';
import { ContainerView } from './container-view.ts';
import type { ContainerdPrograms } from './node/containerd.ts';
import { InstalledDriver } from './node/driver.ts';
import { NodeCheck } from './node/node-check.ts';
import { bootIdPath, RealNode } from './node/real-node.ts';
import { type ClusterPrograms, olderVariable, readPrograms } from './programs.ts';
import { createPods, expectServed, findPod, namesOf, recovery, type VfPod } from './vf-pods.ts';

const newer = readPrograms(process.env);
const older = readPrograms(process.env, olderVariable);
const nameOf = ({ kubernetesVersion, runtimeLabel }: ClusterPrograms) => `${kubernetesVersion} and ${runtimeLabel}`;
const pairs = `Kubernetes ${nameOf(older)} to ${nameOf(newer)}`;

/** The control plane has the newer version from the start, as the order of an upgrade prescribes. */
it(`pods keep their VFs and files while their node is upgraded and downgraded across ${pairs}`, {
  timeout: 900_000,
}, async () => {
  await using stack = new AsyncDisposableStack();
  const kubelet = kubeletOf(older);
  const node = stack.use(await RealNode.start({ ...newer, kubelet, runtime: older.runtime }));
  const extraArgs = [`--boot-id-path=${bootIdPath}`, '--reconcile-interval=10'];
  const { target } = await InstalledDriver.install(node, { simulate: '2x16', extraArgs });
  const cluster = stack.use(await Cluster.open(target));
  const test = { cluster, view: (pod: string) => new ContainerView(cluster, pod) };
  const check = new NodeCheck(node, target);

  /** Which containers run, and what is in their files. */
  const stateOf = async ({ name }: VfPod) => {
    const [status] = (await findPod(cluster, name))?.status?.containerStatuses ?? [];
    const view = test.view(name);
    const text = await view.read('cat', view.metadataPath(`resourceclaims/${name}`, 'vf'));
    return [name, status?.containerID, status?.restartCount, text];
  };
  const pods = await createPods(cluster, 4);
  await expectServed(test, pods);
  const before = await Promise.all(pods.map(stateOf));

  const nodeInfo = async () => (await node.list<V1Node>('/api/v1/nodes'))[0]?.status?.nodeInfo;
  let created = pods.length;
  let passing = await createPods(cluster, 2, created);
  const changes = [newer, older].flatMap((to) => [
    {
      shown: { containerRuntimeVersion: expect.stringContaining(to.runtimeLabel.replace(' ', '://')) },
      change: () => node.runtime.replaceBy?.(containerdOf(to)),
    },
    {
      shown: { kubeletVersion: expect.stringContaining(`v${to.kubernetesVersion}.`) },
      change: () => node.kubelet.replaceBy({ program: kubeletOf(to) }),
    },
  ]);
  for (const { shown, change } of changes) {
    await expectServed(test, passing);
    await change();
    await expect.poll(nodeInfo, recovery).toMatchObject(shown);
    // Claims from before the change are unprepared after it.
    await cluster.removeWithClaims(namesOf(passing));
    created += passing.length;
    passing = await createPods(cluster, 2, created);
    await expectServed(test, [...pods, ...passing]);
    expect(await Promise.all(pods.map(stateOf)), JSON.stringify(await nodeInfo())).toEqual(before);
  }
  await cluster.removeAll();
  await check.expectRestored();
});

const kubeletOf = ({ kubernetes }: ClusterPrograms) => join(kubernetes, 'kubelet');

function containerdOf({ runtime }: ClusterPrograms): ContainerdPrograms {
  if (runtime.kind !== 'containerd') throw new Error(`a node of ${runtime.kind} is not upgraded here`);
  return runtime;
}
