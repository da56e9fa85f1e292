/** Pods with a VF each, and what holds for all of them. */
import type { V1Pod } from '@kubernetes/client-node';
import { expect } from 'vitest';
import { expectedNetworkData } from '../ip-link.ts';
import type { Cluster } from './cluster.ts';
import type { ContainerView } from './container-view.ts';
import type { TestCluster } from './describe-cluster.ts';
import { createPodWithClaim } from './objects.ts';

/** Time for pods to run after a fault. A driver that was killed before is restarted after 10 s, then 20 s. */
export const recovery = { timeout: 120_000, interval: 500 };

export interface VfPod {
  /** Name of the pod and of its claim. */
  name: string;
  address: string;
}

/** Creates pods with a VF each, with a unique address. @param first number of the first pod */
export async function createPods(cluster: Cluster, count: number, first = 0): Promise<VfPod[]> {
  const numbers = Array.from({ length: count }, (_, index) => first + index);
  const pods = numbers.map((number) => ({ name: `pod-${number}`, address: `192.0.2.${number + 1}/24` }));
  await Promise.all(
    pods.map(async ({ name, address }) => {
      const config = { interfaceName: 'net1', addresses: [address] };
      await createPodWithClaim(cluster, name, [{ name: 'vf', config }], { restartPolicy: 'Always' });
    }),
  );
  return pods;
}

export const namesOf = (pods: readonly VfPod[]) => pods.map(({ name }) => name);

export const findPod = (cluster: Cluster, name: string) => cluster.find<V1Pod>('Pod', name);

/** Pods that do not run, with their state as the kubelet reports it. */
export async function notRunning(cluster: Cluster, pods: VfPod[]): Promise<string[]> {
  const found = await cluster.list<V1Pod>('Pod');
  return pods.flatMap(({ name }) => {
    const status = found.find(({ metadata }) => metadata.name === name)?.status;
    const isReady = status?.conditions?.some((each) => each.type === 'Ready' && each.status === 'True');
    return isReady ? [] : [`${name} ${status?.phase} ${JSON.stringify(status?.containerStatuses?.[0]?.state)}`];
  });
}

/** Waits until pods run, and compares the metadata of each one with the output of `ip` there. */
export async function expectServed(test: Pick<TestCluster, 'cluster' | 'view'>, pods: VfPod[]): Promise<void> {
  await expect.poll(() => notRunning(test.cluster, pods), recovery).toEqual([]);
  await Promise.all(
    pods.map(async ({ name, address }) => {
      const { claim, devices } = await expectTruth(test.view(name), `resourceclaims/${name}`);
      expect([claim.name, devices[0]?.networkData?.ips]).toEqual([name, [address]]);
    }),
  );
}

/** Compares a container's metadata file with the output of `ip` for its VF, `net1`. @returns the content of the file */
export async function expectTruth(container: ContainerView, claim: string) {
  const [document, links] = await Promise.all([container.metadata(claim, 'vf'), container.links()]);
  const networkData = expectedNetworkData(links.find(({ ifname }) => ifname === 'net1'));
  expect(document.devices.map((device) => device.networkData)).toEqual([networkData]);
  return document;
}
