import { setTimeout as sleep } from 'node:timers/promises';
import {
  createSliceApi,
  type Device,
  type Pool,
  type PublisherOptions,
  type ResourceSlice,
  SlicePublisher,
} from '../../../../src/framework/resourceslice/index.ts';
import type { ApiServerOptions } from '../../../doubles/api-server.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { buildNode, testDriver, testNode } from '../../../doubles/objects.ts';

export { poll };

/** When a publisher has nothing to do, it sleeps this long. */
export const recheckMs = 300_000;

/**
 * An API server with a node, and publishers for it whose time stands still.
 * @param random how much of what may be added to waiting times is added, from 0 to 1
 */
export async function startBench({ random = 0, ...options }: ApiServerOptions & { random?: number } = {}) {
  const kube = await startKubeBench(options);
  const { api, client, resources, logger, clock } = kube;
  const node = buildNode();
  api.create(node);
  const errors: Error[] = [];
  const place = { driver: testDriver, nodeName: testNode };
  const start = (more: Partial<PublisherOptions> = {}) =>
    kube.stack.use(
      new SlicePublisher(createSliceApi(client, resources, place), {
        ...place,
        clock,
        logger,
        random: () => random,
        onError: (error) => errors.push(error),
        ...more,
      }),
    );
  return {
    ...kube,
    node,
    errors,
    start,
    slices: () => api.objects<ResourceSlice>('ResourceSlice'),
    /** Methods of the requests that changed something, or tried to. */
    writes: () => api.log.filter(({ method }) => method !== 'GET').map(({ method }) => method),
    lists: () => api.log.filter(({ method, path, isWatch }) => isList(method, path) && !isWatch).length,
    /** Runs something, and waits until the publisher has looked again and is idle. @returns the methods of its writes */
    async settle(task: () => void): Promise<string[]> {
      const before = { writes: this.writes().length, lists: this.lists() };
      task();
      await poll(() => this.lists()).toBeGreaterThan(before.lists);
      await this.idle();
      return this.writes().slice(before.writes);
    },
    async idle(): Promise<void> {
      await poll(() => clock.sleeping().filter((ms) => ms === recheckMs)).toHaveLength(1);
      await poll(() => api.watchCount).toBe(1);
    },
    /** Lets these pauses pass, each as soon as the publisher is in it. */
    async pass(...pausesMs: number[]): Promise<void> {
      for (const pauseMs of pausesMs) {
        await poll(() => clock.sleeping()).toContain(pauseMs);
        clock.advance(pauseMs);
      }
    },
    /** Lets the publisher's time pass, second by second, until something is so. @returns how many seconds it took */
    async passTime(isSo: () => boolean, limitSeconds = 600): Promise<number> {
      for (let seconds = 0; ; seconds++) {
        if (isSo()) return seconds;
        if (seconds === limitSeconds) throw new Error(`it is still not so after ${limitSeconds} s`);
        clock.advance(1_000);
        await sleep(3);
      }
    },
  };
}

/** Tests with a bench, and a publisher on it. */
export const it = itWith(() => startBench()).extend<{ publisher: SlicePublisher }>({
  publisher: async ({ own: bench }, use) => use(bench.start()),
});

function isList(method: string, path: string): boolean {
  return method === 'GET' && path.endsWith('/resourceslices');
}

export function devices(count: number, more: Partial<Device> = {}): Device[] {
  return Array.from({ length: count }, (_, n) => ({ name: `dev-${n}`, attributes: { vfIndex: { int: n } }, ...more }));
}

/** Resources with one pool, named after the node. */
export function onePool(pool: Device[] | Pool) {
  return { pools: { [testNode]: Array.isArray(pool) ? { devices: pool } : pool } };
}

export function names(slices: ResourceSlice[]): string[][] {
  return slices.map(({ spec }) => (spec.devices ?? []).map(({ name }) => name));
}

export function generations(slices: ResourceSlice[]): number[] {
  return slices.map(({ spec }) => spec.pool.generation);
}
