import { setTimeout as sleep } from 'node:timers/promises';
import { cpuMs } from '../../../test/bench/shipped-driver.ts';
import { type Distribution, summarize } from '../../../test/bench/stats.ts';
import { PodWatch } from '../start-times/pod-watch.ts';
import type { Cost } from './api-metrics.ts';
import type { LargeCluster } from './large-cluster.ts';

/** Results for pods with one claim each, from a template, placed by the scheduler. */
export interface Placing {
  pods: number;
  /** Time until the last one was bound. */
  allMs: number;
  /** For each pod, from the request that creates it to its binding. */
  bindingMs: Distribution;
  schedulerCpuMs: number;
  /** Cost for all clients. */
  claims: Cost;
}

const namespace = 'scale';
const names = { class: 'scale', template: 'nic' };

/** @param driver whose devices the claims request */
export async function placePods(cluster: LargeCluster, driver: string, count: number): Promise<Placing> {
  await prepareNamespace(cluster, driver);
  const { client, controlPlane } = cluster;
  using watch = PodWatch.open(client, namespace);
  const pods = Array.from({ length: count }, (_, index) => buildPod(`pod-${index}`));
  const scheduler = controlPlane.programs.scheduler!.pid;
  const before = { metrics: await cluster.metrics(), cpuMs: cpuMs(scheduler) };
  const createdAt = new Map<string, number>();
  const startedAt = Date.now();
  const left = pods.values();
  const create = async () => {
    for (const body of left) {
      createdAt.set(body.metadata.name, Date.now());
      await client.request({ method: 'POST', path: `/api/v1/namespaces/${namespace}/pods`, body });
    }
  };
  await Promise.all(Array.from({ length: 20 }, create));
  const bound = await watch.untilBound([...createdAt.keys()], 60_000 + count * 200).catch((cause) => {
    const text = controlPlane.kubectl('get', 'events', '--namespace', namespace).slice(0, 2_000);
    throw new Error(`pods are not placed; the first events of them:\n${text}`, { cause });
  });
  return {
    pods: count,
    allMs: Math.max(...bound.values()) - startedAt,
    bindingMs: summarize([...bound].map(([name, atMs]) => atMs - (createdAt.get(name) ?? 0))),
    schedulerCpuMs: cpuMs(scheduler) - before.cpuMs,
    claims: (await cluster.metrics()).costOf('resourceclaims', before.metrics),
  };
}

async function prepareNamespace({ client }: LargeCluster, driver: string): Promise<void> {
  const api = '/apis/resource.k8s.io/v1';
  const create = (path: string, body: object) => client.request({ method: 'POST', path, body });
  await create('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  const selectors = [{ cel: { expression: `device.driver == "${driver}"` } }];
  await create(`${api}/deviceclasses`, {
    ...{ apiVersion: 'resource.k8s.io/v1', kind: 'DeviceClass' },
    ...{ metadata: { name: names.class }, spec: { selectors } },
  });
  const requests = [{ name: 'vf', exactly: { deviceClassName: names.class } }];
  await create(`${api}/namespaces/${namespace}/resourceclaimtemplates`, {
    ...{ apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaimTemplate' },
    ...{ metadata: { name: names.template, namespace }, spec: { spec: { devices: { requests } } } },
  });
  // Pods are refused before the account exists, which a controller creates.
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts`;
  for (const endsAt = performance.now() + 30_000; ; await sleep(100)) {
    const { items } = await client.request<{ items: object[] }>({ method: 'GET', path });
    if (items.length > 0) return;
    if (performance.now() > endsAt) throw new Error(`namespace ${namespace} has no service account after 30 s`);
  }
}

function buildPod(name: string) {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace },
    spec: {
      automountServiceAccountToken: false,
      resourceClaims: [{ name: 'nic', resourceClaimTemplateName: names.template }],
      containers: [{ name: 'main', image: 'none', resources: { claims: [{ name: 'nic' }] } }],
    },
  };
}
