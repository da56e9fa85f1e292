import { type DeviceClass, KubeError, ListWatch, type ResourceApi } from '../../framework/kube/index.ts';
import { abortable } from '../../lib/abort.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { periods } from '../../lib/waiting-times.ts';

export interface DeviceClassesOptions {
  resources: Pick<ResourceApi, 'readDeviceClass' | 'list' | 'watch'>;
  clock: Clock;
  logger: Logger;
  /** Returns numbers from 0 up to 1; default `Math.random`. */
  random?: () => number;
}

const path = 'deviceclasses';
/** Less than the 42 s after which a call of the kubelet has its answer: the locks of its claims are held meanwhile. */
const readTimeoutMs = 20_000;

export interface ClassReader {
  /** See {@link DeviceClasses}. */
  known(name: string): DeviceClass | undefined;
  read(name: string, signal: AbortSignal): Promise<DeviceClass>;
}

/**
 * The cluster's DeviceClasses: listed when one is read for the first time, and watched from then on. A node without claims
 * thus sends no requests, and preparing a claim waits for none.
 */
export class DeviceClasses implements ClassReader, AsyncDisposable {
  readonly #options: DeviceClassesOptions;
  readonly #stop = new AbortController();
  readonly #watch: ListWatch<DeviceClass>;
  /** Classes by name. Absent until they are listed, and after changes were missed. */
  #classes: Map<string, DeviceClass> | undefined;
  #listing: Promise<void> | undefined;
  /** Requests in progress, by name: claims of one class often arrive together. */
  readonly #reading = new Map<string, Promise<DeviceClass>>();

  constructor(options: DeviceClassesOptions) {
    this.#options = options;
    this.#watch = new ListWatch({
      ...options,
      what: 'DeviceClasses',
      open: (resourceVersion, signal) => options.resources.watch({ path, query: { resourceVersion }, signal }),
      onChange: (object, type) => {
        const { name = '' } = object.metadata;
        if (type === 'DELETED') this.#classes?.delete(name);
        else this.#classes?.set(name, object);
      },
      onLost: () => {
        this.#classes = undefined;
        return this.#list();
      },
    });
  }

  /** Returns a class as last seen; `undefined` if it is unknown, although it may exist. */
  known(name: string): DeviceClass | undefined {
    if (this.#classes === undefined) void this.#list();
    return this.#classes?.get(name);
  }

  /**
   * Reads the current class from the API server, for at most 20 s.
   * @throws KubeError `api-not-found`, …; the signal's reason if it fires first
   */
  async read(name: string, signal: AbortSignal): Promise<DeviceClass> {
    let reading = this.#reading.get(name);
    if (reading === undefined) {
      // Without the signal, which ends one claim's wait and not that of the others.
      reading = this.#readNow(name).finally(() => this.#reading.delete(name));
      this.#reading.set(name, reading);
    }
    return await abortable(reading, signal, () => signal.reason);
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#listing;
    await this.#watch[Symbol.asyncDispose]();
  }

  async #readNow(name: string): Promise<DeviceClass> {
    const { resources, clock } = this.#options;
    using deadline = clock.deadline(readTimeoutMs, this.#stop.signal);
    return await resources.readDeviceClass(name, deadline.signal).catch((cause: unknown) => {
      if (!deadline.signal.aborted || this.#stop.signal.aborted) throw cause;
      const message = `DeviceClass ${name}: no answer from the API server within ${readTimeoutMs} ms`;
      throw new KubeError('api-timeout', message, { cause, retriable: true });
    });
  }

  #list(): Promise<void> {
    this.#listing ??= this.#listUntilDone().finally(() => {
      this.#listing = undefined;
    });
    return this.#listing;
  }

  async #listUntilDone(): Promise<void> {
    const { resources, clock, logger } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        const { metadata, items } = await resources.list<DeviceClass>({ path, signal });
        this.#classes = new Map(items.map((each) => [each.metadata.name ?? '', each]));
        return this.#watch.follow(metadata.resourceVersion ?? '');
      } catch (error) {
        if (signal.aborted) return;
        logger.warn({ err: error }, 'cannot list DeviceClasses; reading them per claim');
        await clock.sleep(periods.deviceClasses, signal).catch(() => undefined);
      }
    }
  }
}
