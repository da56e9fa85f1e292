import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { KubeConfig } from '@kubernetes/client-node';
import { KubeClient } from '../../../src/framework/kube/index.ts';
import type { Device } from '../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { ControlPlane } from '../control-plane.ts';
import type { ClusterPrograms } from '../programs.ts';
import { readText } from '../read-text.ts';
import { ApiMetrics } from './api-metrics.ts';

/** A real control plane with nodes on which nothing runs. */
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

  /** @param count number of nodes */
  static async start({ etcd, kubernetes }: ClusterPrograms, count: number): Promise<LargeCluster> {
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'scale-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const controlPlane = stack.use(await ControlPlane.start({ dir, etcd, kubernetes }));
    const config = new KubeConfig();
    config.loadFromFile(controlPlane.adminKubeconfig);
    const client = stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra-e2e' }));
    const nodes = Array.from({ length: count }, (_, index) => `worker-${String(index).padStart(4, '0')}`);
    // Many at once: one after the other takes minutes.
    const left = nodes.values();
    const create = async () => {
      for (const name of left) {
        const body = { apiVersion: 'v1', kind: 'Node', metadata: { name } };
        await client.request({ method: 'POST', path: '/api/v1/nodes', body });
      }
    };
    await Promise.all(Array.from({ length: 50 }, create));
    return new LargeCluster({ controlPlane, client, nodes, dir, config }, stack.move());
  }

  async metrics(): Promise<ApiMetrics> {
    return new ApiMetrics(await readText(this.#config, '/metrics'));
  }

  /** Waits for this many writes of slices, and until none follows for 3 s. @returns ms until the last one */
  async untilWritten(count: number, before: ApiMetrics, startedAt: number): Promise<number> {
    let [seen, lastAt] = [0, performance.now()];
    for (const endsAt = performance.now() + 300_000; ; await sleep(250)) {
      const { writes } = (await this.metrics()).costOf('resourceslices', before);
      const now = performance.now();
      if (writes > seen) [seen, lastAt] = [writes, now];
      if (seen >= count && now - lastAt > 3_000) return lastAt - startedAt;
      if (now > endsAt) throw new Error(`${seen} of ${count} writes after 300 s`);
    }
  }

  /** Writes what publishers are to publish to a file. @returns its path */
  writeFile(name: string, content: readonly Device[]): string {
    const path = join(this.#dir, `${name}.json`);
    writeFileSync(path, JSON.stringify(content));
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
