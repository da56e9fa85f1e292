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
/**
 * Time limit for reading a class, ms. Well below the 42 s that a kubelet call may take, so that a slow API server does not use
 * up the call, which holds the locks of its claims meanwhile.
 */
const readTimeoutMs = 20_000;

export interface ClassReader {
  /** See {@link DeviceClasses}. */
  known(name: string): DeviceClass | undefined;
  read(name: string, signal: AbortSignal): Promise<DeviceClass>;
}

/**
 * The cluster's DeviceClasses, listed when a class is needed for the first time, and watched from then on. So a node without
 * claims sends no requests, and a claim with a known class waits for none.
 */
export class DeviceClasses implements ClassReader, AsyncDisposable {
  readonly #options: DeviceClassesOptions;
  readonly #stop = new AbortController();
  readonly #watch: ListWatch<DeviceClass>;
  /** Classes by name; `undefined` until they are listed, and again after the watch has missed changes. */
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

  /**
   * Returns the last known version of a class; `undefined` if the class is unknown, which does not mean that it does not
   * exist.
   */
  known(name: string): DeviceClass | undefined {
    if (this.#classes === undefined) void this.#list();
    return this.#classes?.get(name);
  }

  /**
   * Reads a class from the API server, for at most 20 s.
   * @throws KubeError `api-not-found`, …; the signal's reason if it fires first
   */
  async read(name: string, signal: AbortSignal): Promise<DeviceClass> {
    let reading = this.#reading.get(name);
    if (reading === undefined) {
      // The request does not get `signal`: other claims may wait for the same request when one of them stops waiting.
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
