import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { KubeConfig, type KubernetesObject } from '@kubernetes/client-node';
import type { NodeView } from '../../../src/driver/nodeview/index.ts';
import { KubeClient } from '../../../src/framework/kube/index.ts';
import type { Device } from '../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { ControlPlane } from '../control-plane.ts';
import type { ClusterPrograms } from '../programs.ts';
import { readText } from '../read-text.ts';
import { ApiMetrics } from './api-metrics.ts';
import { startKwok } from './kwok.ts';

const requestsAtOnce = 50;

/** A real control plane with nodes that `kwok` keeps ready, and whose pods it simulates. */
export class LargeCluster implements AsyncDisposable {
  readonly controlPlane: ControlPlane;
  readonly client: KubeClient;
  readonly nodes: readonly string[];
  readonly #dir: string;
  readonly #config: KubeConfig;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    parts: Pick<LargeCluster, 'controlPlane' | 'client' | 'nodes'> & { dir: string; config: KubeConfig },
    stack: AsyncDisposableStack,
  ) {
    this.controlPlane = parts.controlPlane;
    this.client = parts.client;
    this.nodes = parts.nodes;
    this.#dir = parts.dir;
    this.#config = parts.config;
    this.#stack = stack;
  }

  /** @param kwok the program @param count number of nodes */
  static async start({ etcd, kubernetes }: ClusterPrograms, kwok: string, count: number): Promise<LargeCluster> {
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'scale-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const options = { dir, etcd, kubernetes, clientQps: 2_000 };
    const controlPlane = stack.use(await ControlPlane.start(options));
    const config = new KubeConfig();
    config.loadFromFile(controlPlane.adminKubeconfig);
    const client = stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra-e2e' }));
    const nodes = Array.from({ length: count }, (_, index) => `worker-${String(index).padStart(4, '0')}`);
    const cluster = new LargeCluster({ controlPlane, client, nodes, dir, config }, stack.move());
    try {
      await cluster.createAll('/api/v1/nodes', nodes.map(buildNode));
      cluster.#stack.use(await startKwok(kwok, dir, controlPlane.adminKubeconfig));
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
    return cluster;
  }

  /** Creates objects, many in parallel. @throws KubeError */
  async createAll(path: string, objects: readonly KubernetesObject[]): Promise<void> {
    const left = objects.values();
    const work = async () => {
      for (const body of left) await this.client.request({ method: 'POST', path, body });
    };
    await Promise.all(Array.from({ length: requestsAtOnce }, work));
  }

  async metrics(): Promise<ApiMetrics> {
    return new ApiMetrics(await readText(this.#config, '/metrics'));
  }

  /** Waits for this many writes of a resource, and until none follows for 3 s. @returns ms until the last one */
  async untilWritten(resource: string, count: number, before: ApiMetrics, startedAt: number): Promise<number> {
    let [seen, lastAt] = [0, performance.now()];
    for (const endsAt = performance.now() + 300_000; ; await sleep(250)) {
      const { writes } = (await this.metrics()).costOf(resource, before);
      const now = performance.now();
      if (writes > seen) [seen, lastAt] = [writes, now];
      if (seen >= count && now - lastAt > 3_000) return lastAt - startedAt;
      if (now > endsAt) throw new Error(`${seen} of ${count} writes of ${resource} after 300 s`);
    }
  }

  /** Writes what publishers are to publish to a file. @returns its path */
  writeFile(name: string, content: readonly Device[] | NodeView): string {
    const path = join(this.#dir, `${name}.json`);
    writeFileSync(path, JSON.stringify(content));
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

function buildNode(name: string): KubernetesObject & { spec: object; status: object } {
  const resources = { cpu: '64', memory: '256Gi', pods: '110' };
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { 'kubernetes.io/hostname': name }, annotations: { 'kwok.x-k8s.io/node': 'fake' } },
    spec: {},
    status: {
      capacity: resources,
      allocatable: resources,
      conditions: [
        { type: 'Ready', status: 'True', reason: 'KubeletReady', lastHeartbeatTime: new Date().toISOString() },
      ],
    },
  };
}
