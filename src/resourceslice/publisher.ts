import { isDeepStrictEqual } from 'node:util';
import {
  CoreV1Api,
  type KubeConfig,
  ResourceV1Api,
  type V1Device,
  type V1ResourceSlice,
} from '@kubernetes/client-node';
import type { Clock } from '../clock.ts';
import { explain } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { DeviceAttributes } from '../metadata/index.ts';

/** `ResourceSliceMaxDevices` of resource.k8s.io/v1. */
const maxDevicesPerSlice = 128;
/** The kubelet deletes our slices when we were away or it starts anew, so they are looked after. */
const recheckMs = 30_000;
const retryMs = { first: 1_000, last: 30_000 };

export interface PublisherOptions {
  driver: string;
  nodeName: string;
  clock: Clock;
  logger: Logger;
}

/** A device as it is offered. */
export interface OfferedDevice {
  /** DNS label, unique in the pool. */
  name: string;
  attributes: DeviceAttributes;
}

/** The API server's side of publishing, as far as we use it. */
export interface SliceApi {
  nodeUid(name: string): Promise<string>;
  list(driver: string, nodeName: string): Promise<V1ResourceSlice[]>;
  create(slice: V1ResourceSlice): Promise<void>;
  replace(slice: V1ResourceSlice): Promise<void>;
  delete(slice: V1ResourceSlice): Promise<void>;
}

/**
 * Publishes the node's devices as one pool, named after the node, and keeps it so: slices that are missing or were
 * changed by others are written again; what is right is left alone. Failures are logged and tried again.
 */
export class SlicePublisher implements AsyncDisposable {
  readonly #api: SliceApi;
  readonly #options: PublisherOptions;
  readonly #stop = new AbortController();
  #devices: V1Device[] = [];
  #loop: Promise<void> | undefined;
  #wake = Promise.withResolvers<void>();

  constructor(api: SliceApi, options: PublisherOptions) {
    this.#api = api;
    this.#options = options;
  }

  /** What is to be offered from now on, in the order in which the allocator shall try it. */
  publish(devices: OfferedDevice[]): void {
    this.#devices = devices.map(toModel);
    this.recheck();
    this.#loop ??= this.#run();
  }

  /** Looks at once whether the API server still has what it should. */
  recheck(): void {
    this.#wake.resolve();
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    let pauseMs: number = retryMs.first;
    while (!this.#stop.signal.aborted) {
      this.#wake = Promise.withResolvers();
      let waitMs = recheckMs;
      try {
        await this.#sync();
        pauseMs = retryMs.first;
      } catch (error) {
        waitMs = pauseMs;
        pauseMs = Math.min(pauseMs * 2, retryMs.last);
        this.#options.logger.error(
          { err: error, retryMs: waitMs, reason: explain(error) },
          'resource slices not published',
        );
      }
      const pause = this.#options.clock.sleep(waitMs, this.#stop.signal).catch(() => undefined);
      await Promise.race([pause, this.#wake.promise]);
    }
  }

  async #sync(): Promise<void> {
    const { driver, nodeName, logger } = this.#options;
    const actual = await this.#api.list(driver, nodeName);
    const chunks = chunk(this.#devices, maxDevicesPerSlice);
    const inPlace = chunks.map((devices, index) =>
      actual.find(
        (slice) =>
          slice.metadata?.name === sliceName(nodeName, driver, index) &&
          slice.spec.pool.resourceSliceCount === chunks.length &&
          isDeepStrictEqual(plain(slice.spec.devices ?? []), plain(devices)),
      ),
    );
    const obsolete = actual.filter((slice) => !inPlace.includes(slice));
    if (obsolete.length === 0 && !inPlace.includes(undefined)) return;
    const newest = Math.max(0, ...actual.map((slice) => slice.spec.pool.generation));
    const nodeUid = await this.#api.nodeUid(nodeName);
    for (const [index, devices] of chunks.entries()) {
      const slice = buildSlice(this.#options, nodeUid, {
        index,
        count: chunks.length,
        generation: newest + 1,
        devices,
      });
      const existing = actual.find(({ metadata }) => metadata?.name === slice.metadata?.name);
      if (existing === undefined) await this.#api.create(slice);
      else await this.#api.replace({ ...slice, metadata: { ...existing.metadata, ...slice.metadata } });
    }
    const names = new Set(chunks.map((_, index) => sliceName(nodeName, driver, index)));
    for (const slice of actual) if (!names.has(slice.metadata?.name ?? '')) await this.#api.delete(slice);
    logger.info(
      { devices: this.#devices.length, slices: chunks.length, generation: newest + 1 },
      'resource slices published',
    );
  }
}

function sliceName(nodeName: string, driver: string, index: number): string {
  return `${nodeName}-${driver}-${index}`;
}

function buildSlice(
  { driver, nodeName }: PublisherOptions,
  nodeUid: string,
  part: { index: number; count: number; generation: number; devices: V1Device[] },
): V1ResourceSlice {
  return {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceSlice',
    metadata: {
      name: sliceName(nodeName, driver, part.index),
      ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: nodeName, uid: nodeUid, controller: true }],
    },
    spec: {
      driver,
      nodeName,
      pool: { name: nodeName, generation: part.generation, resourceSliceCount: part.count },
      devices: part.devices,
    },
  };
}

/** The generated model has other names for members that are keywords elsewhere, and drops what it does not know. */
function toModel({ name, attributes }: OfferedDevice): V1Device {
  const converted = Object.entries(attributes).map(([key, { int, ...rest }]) => [
    key,
    int === undefined ? rest : { ...rest, _int: int },
  ]);
  return { name, attributes: Object.fromEntries(converted) };
}

/** At least one chunk: a pool without devices still is a pool. */
function chunk<T>(items: T[], size: number): T[][] {
  const chunks: T[][] = [];
  for (let start = 0; start < items.length || start === 0; start += size) chunks.push(items.slice(start, start + size));
  return chunks;
}

/** Model classes of the API client to plain data, so that they compare. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

/** The API as `@kubernetes/client-node` offers it. */
export function createKubeSliceApi(config: KubeConfig): SliceApi {
  const resources = config.makeApiClient(ResourceV1Api);
  const core = config.makeApiClient(CoreV1Api);
  return {
    async nodeUid(name) {
      const uid = (await core.readNode({ name })).metadata?.uid;
      if (uid === undefined) throw new Error(`node ${name} has no UID`);
      return uid;
    },
    async list(driver, nodeName) {
      const fieldSelector = `spec.driver=${driver},spec.nodeName=${nodeName}`;
      return (await resources.listResourceSlice({ fieldSelector })).items;
    },
    async create(body) {
      await resources.createResourceSlice({ body });
    },
    async replace(body) {
      await resources.replaceResourceSlice({ name: body.metadata?.name ?? '', body });
    },
    async delete(slice) {
      await resources.deleteResourceSlice({ name: slice.metadata?.name ?? '' });
    },
  };
}
