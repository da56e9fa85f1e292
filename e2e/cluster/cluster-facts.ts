import type { KubernetesObject, V1Node } from '@kubernetes/client-node';
import type { KubeClient, KubeList } from '../../src/framework/kube/index.ts';
import type { Device } from '../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { NetdraError } from '../../src/lib/errors.ts';

export interface Slice extends KubernetesObject {
  spec: { driver: string; nodeName?: string; pool: { name: string }; devices?: Device[] };
}

/** A node, and the label that places pods there. */
export interface ClusterNode {
  name: string;
  hostname: string;
}

/** Timeout for one step: seconds are enough, as images are present, but a busy laptop can take longer. */
export const defaultTimeoutMs = 60_000;
export const pollMs = 100;

/** A cluster that does not meet the tests' requirements, or does not react in time. */
export class ClusterError extends NetdraError<'too-old' | 'no-devices' | 'no-driver' | 'not-in-time'> {}

/** @throws ClusterError `too-old` */
export async function checkVersion(client: KubeClient, oldest: string): Promise<void> {
  const { major, minor, gitVersion } = await client.request<Record<string, string>>({
    method: 'GET',
    path: '/version',
  });
  // Some clouds report `36+`.
  const numbers = [major, minor].map((text = '') => Number.parseInt(text, 10));
  const [oldestMajor = 0, oldestMinor = 0] = oldest.split('.').map(Number);
  const [is = 0, has = 0] = numbers;
  if (is > oldestMajor || (is === oldestMajor && has >= oldestMinor)) return;
  throw new ClusterError('too-old', `the cluster is Kubernetes ${gitVersion}; the tests need ${oldest} or newer`);
}

/** The slices of a driver, for all nodes. */
export async function listSlices(client: KubeClient, driver: string): Promise<Slice[]> {
  const path = '/apis/resource.k8s.io/v1/resourceslices';
  const { items } = await client.request<KubeList<Slice>>({ method: 'GET', path });
  return items.filter(({ spec }) => spec.driver === driver);
}

/** The first node on which the driver offers devices. @throws ClusterError `no-devices` */
export async function findNode(client: KubeClient, driver: string, timeoutMs: number): Promise<ClusterNode> {
  for (const endsAt = systemClock.nowMs() + timeoutMs; ; await systemClock.sleep(pollMs)) {
    const slices = await listSlices(client, driver);
    const name = slices.find(({ spec }) => (spec.devices ?? []).length > 0)?.spec.nodeName;
    if (name !== undefined) {
      const node = await client.request<V1Node>({ method: 'GET', path: `/api/v1/nodes/${name}` });
      return { name, hostname: node.metadata?.labels?.['kubernetes.io/hostname'] ?? name };
    }
    if (systemClock.nowMs() < endsAt) continue;
    throw new ClusterError('no-devices', `no node has a ResourceSlice of ${driver} with devices`, {
      hint: 'look at the log of its pods, and run netdra doctor there',
    });
  }
}
