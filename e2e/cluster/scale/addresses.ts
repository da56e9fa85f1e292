import { performance } from 'node:perf_hooks';
import { AddressAllocator, type AddressWish } from '../../../src/driver/addresses/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { renderTable } from '../../../test/bench/render.ts';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import { ApiCluster, type ApiUser } from '../api/api-cluster.ts';
import { ApiMetrics } from './api-metrics.ts';

const kinds = ['networkaddresses', 'networkaddressleases', 'networkaddresspools', 'resourceclaims', 'pods'];
const pool = 'lan';
const namespace = 'default';
/** Time after which a kubelet tries a refused claim again, at the earliest. */
const kubeletRetryMs = 10_000;
const { signal } = new AbortController();

/** A key, the claim and the pod that have it at the moment, and the allocator of their node. */
interface Turn {
  wish: AddressWish;
  allocator: AddressAllocator;
  addresses?: string[];
}

/**
 * What pods with addresses of a pool cost the API server, from its metrics: one pod on each node, and the driver's own allocator with
 * the token of the node.
 * @param count of nodes
 * @returns a table in Markdown
 */
export async function measureAddresses(count: number, progress: (line: string) => void): Promise<string> {
  await using cluster = await ApiCluster.start({ values: { addressPools: { enabled: true } } });
  progress(`a token for each of ${count} nodes`);
  const nodes = Array.from({ length: count }, (_, index) => `node-${index}`);
  const drivers = await manyAtOnce(nodes, (node) => cluster.driverOn(node));
  const ranges = [{ network: '10.0.0.0/16' }, { network: '2001:db8::/64' }];
  await cluster.create({
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'NetworkAddressPool',
    metadata: { name: pool },
    spec: { ranges },
  } as object);
  const rows: string[][] = [];
  const measure = async (what: string, work: () => Promise<number>) => {
    progress(what);
    const before = new ApiMetrics(await cluster.send('GET', '/metrics'));
    const startedMs = performance.now();
    const refusedPrepares = await work();
    const seconds = (performance.now() - startedMs) / 1_000;
    const after = new ApiMetrics(await cluster.send('GET', '/metrics'));
    const costs = kinds.map((kind) => after.costOf(kind, before));
    const perPod = (field: 'reads' | 'writes' | 'refused' | 'receivedBytes' | 'sentBytes') =>
      costs.reduce((sum, cost) => sum + cost[field], 0) / count;
    const kB = (bytes: number) => (bytes / 1_000).toFixed(1);
    rows.push([
      what,
      seconds.toFixed(1),
      perPod('writes').toFixed(2),
      perPod('reads').toFixed(2),
      perPod('refused').toFixed(2),
      kB(perPod('receivedBytes')),
      kB(perPod('sentBytes')),
      String(refusedPrepares),
    ]);
  };
  /** Pods with claims, one for each key. @param shift of the nodes, on which pods with these keys were before */
  const podsOf = (keys: string, generation: number, shift = 0) =>
    manyAtOnce(nodes, async (_, index): Promise<Turn> => {
      const node = (index + shift) % count;
      const wish = await wishOf(cluster, `${keys}-${index}`, `${keys}-${index}-${generation}`);
      return { wish, allocator: allocatorOn(drivers[node]!, nodes[node]!) };
    });
  const early = await podsOf('early', 0);
  await measure('new keys, one after another', async () => {
    for (const turn of early) await assign(turn);
    return 0;
  });
  let pods = await podsOf('late', 0);
  await measure('new keys, on all nodes at once', () => assignAll(pods));
  await measure('a check of the leases, which each driver does every five minutes', async () => {
    await Promise.all(
      pods.map(async ({ allocator, addresses = [], wish }) => {
        const areLeased = await allocator.areLeased(pool, addresses, wish.claim.uid, signal);
        if (!areLeased) throw new Error(`${wish.key} has lost a lease`);
      }),
    );
    return 0;
  });
  const former = new Map(pods.map(({ wish, addresses }) => [wish.key, addresses?.join()]));
  await manyAtOnce(pods, ({ wish }) => cluster.admin.client.request({ method: 'DELETE', path: claimPath(wish) }));
  pods = await podsOf('late', 1, 1);
  await measure('all pods move to another node at once', () => assignAll(pods));
  const moved = pods.filter(({ wish, addresses }) => addresses?.join() !== former.get(wish.key));
  if (moved.length > 0) throw new Error(`${moved.length} keys have other addresses than before`);
  const head = [
    '',
    'all done, s',
    'writes',
    'reads',
    'answers 404 and 409',
    'kB in',
    'kB out',
    'prepares refused, in all',
  ];
  return renderTable(head, rows);
}

function allocatorOn({ client, resources }: ApiUser, node: string): AddressAllocator {
  return new AddressAllocator({ kube: client, resources, node, random: Math.random });
}

const claimPath = ({ claim }: AddressWish) =>
  `/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims/${claim.name}`;

/** A claim that is reserved for a pod, which wants the addresses of a key. */
async function wishOf(cluster: ApiCluster, key: string, name: string): Promise<AddressWish> {
  const pod = buildPod(name);
  const { metadata, ...claim } = buildClaim(name, { requests: [{ name: 'vf', devices: ['vf-0'] }], pods: [pod] });
  const { uid: _, ...rest } = metadata;
  const { metadata: created } = await cluster.createClaim({ ...claim, metadata: rest } as never);
  const { name: podName, uid } = pod.metadata;
  return {
    namespace,
    claim: { name, uid: created.uid, request: 'vf' },
    pod: { name: podName, uid },
    pool,
    key,
    name: key,
  };
}

/** @returns how often a prepare was refused, after which the kubelet tries again */
async function assign(turn: Turn): Promise<number> {
  for (let refused = 0; ; refused++) {
    try {
      turn.addresses = (await turn.allocator.assign(turn.wish, signal)).addresses;
      return refused;
    } catch (error) {
      if (refused === 30) throw error;
      await systemClock.sleep(kubeletRetryMs);
    }
  }
}

async function assignAll(turns: readonly Turn[]): Promise<number> {
  const refused = await Promise.all(turns.map(assign));
  return refused.reduce((sum, each) => sum + each, 0);
}

/** Does some work for all items, of which 50 are under way. */
async function manyAtOnce<T, R>(items: readonly T[], work: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const left = items.entries();
  const next = async () => {
    for (const [index, item] of left) results[index] = await work(item, index);
  };
  await Promise.all(Array.from({ length: 50 }, next));
  return results;
}
