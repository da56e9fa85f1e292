import { Background } from '../../lib/background.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { pauses } from '../../lib/waiting-times.ts';
import { isKubeError, retryPauseMs } from './errors.ts';
import type { KubeApi, WatchEvent } from './kube-client.ts';
import { ListWatch } from './list-watch.ts';
import type { KubeList, ObjectMeta } from './types.ts';

/** Requests for a list of the API server and for its changes. */
export interface ListSource<T> {
  list: (signal: AbortSignal) => Promise<KubeList<T>>;
  /** Yields changes after a version of the list. */
  watch: (resourceVersion: string, signal: AbortSignal) => AsyncIterable<WatchEvent<T>>;
}

export interface FollowedListOptions<T> {
  source: ListSource<T>;
  /** Plural name of the objects, for the log: `device classes`. */
  what: string;
  clock: Clock;
  logger: Logger;
  /** Returns numbers from 0 up to 1, to spread the requests of many nodes. */
  random: () => number;
  /** Whether the objects are forgotten if the API server no longer serves their kind. */
  forgetsUnserved?: boolean;
}

export interface PlainListOptions {
  /** Path of the list from the root of the API. */
  path: string;
  query?: Record<string, string>;
  /** Whether only the objects' metadata is requested, a small part of a Node. */
  metadataOnly?: boolean;
}

/** Returns the source of a list whose objects are used as they are on the wire. */
export function plainList<T>(
  kube: KubeApi,
  { path, query = {}, metadataOnly = false }: PlainListOptions,
): ListSource<T> {
  const accept = (kind: string) => {
    const type = `application/json;as=${kind};g=meta.k8s.io;v=v1`;
    return metadataOnly ? { accept: `${type},application/json` } : {};
  };
  return {
    list: (signal) => kube.request({ method: 'GET', path, query, signal, ...accept('PartialObjectMetadataList') }),
    watch: (resourceVersion, signal) =>
      kube.watch({ path, query: { ...query, resourceVersion }, signal, ...accept('PartialObjectMetadata') }),
  };
}

/**
 * The objects of a list as last seen: listed once and then watched, so that an idle list causes no requests. While the API
 * server cannot be reached, the objects stay as last seen.
 */
export class FollowedList<T extends { metadata: ObjectMeta }> implements AsyncDisposable {
  readonly #options: FollowedListOptions<T>;
  readonly #watch: ListWatch<T>;
  readonly #background = new Background();
  readonly #answered = Promise.withResolvers<void>();
  #objects: Map<string, T> | undefined;
  #failure: unknown;
  #unserved = 0;

  constructor(options: FollowedListOptions<T>) {
    this.#options = options;
    this.#watch = new ListWatch({
      ...options,
      open: options.source.watch,
      onChange: (object, type) => {
        if (type === 'DELETED') this.#objects?.delete(keyOf(object));
        else this.#objects?.set(keyOf(object), object);
      },
      onLost: () => this.#start(),
    });
  }

  /** The objects by name, those of a namespace by `NAMESPACE/NAME`; `undefined` until they were listed. */
  get objects(): ReadonlyMap<string, T> | undefined {
    return this.#objects;
  }

  /** Failure of the last attempt to list; `undefined` if it succeeded. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Number of consecutive attempts to list that failed because the API server does not serve the kind. */
  get unserved(): number {
    return this.#unserved;
  }

  start(): void {
    void this.#start();
  }

  /** Waits for the API server's first answer, or the first failure. */
  async whenAnswered(): Promise<void> {
    await this.#answered.promise;
  }

  /**
   * Takes an object from the response to a write, since the watch may report it later. Ignores the object if the watch has
   * already reported its deletion or a newer version.
   */
  update(object: T): void {
    const known = this.#objects?.get(keyOf(object))?.metadata.resourceVersion;
    if (Number(object.metadata.resourceVersion) > Number(known)) this.#objects?.set(keyOf(object), object);
  }

  async [Symbol.asyncDispose]() {
    await this.#background[Symbol.asyncDispose]();
    await this.#watch[Symbol.asyncDispose]();
  }

  async #start(): Promise<void> {
    await this.#background.run('', (signal) => this.#list(signal));
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { source, what, clock, logger, random, forgetsUnserved = false } = this.#options;
    let refusals = 0;
    for (let failures = 0; ; failures++) {
      try {
        const { metadata, items } = await source.list(signal);
        this.#objects = new Map(items.map((each) => [keyOf(each), each]));
        this.#failure = undefined;
        this.#unserved = 0;
        this.#watch.follow(metadata.resourceVersion ?? '');
        return this.#answered.resolve();
      } catch (error) {
        signal.throwIfAborted();
        if (explain(error) !== explain(this.#failure)) logger.warn({ err: error }, `cannot list ${what}`);
        this.#failure = error;
        this.#unserved = isKubeError(error, 'api-unserved') ? this.#unserved + 1 : 0;
        if (forgetsUnserved && this.#unserved > 0) this.#objects = undefined;
        this.#answered.resolve();
        const isRefused = isKubeError(error, 'api-forbidden', 'api-unserved');
        // Counts consecutive refusals only: an API server that starts forbids some requests until it has read all roles.
        refusals = isRefused ? refusals + 1 : 0;
        const waitMs = isRefused
          ? retryPauseMs(error, refusals - 1, pauses.listRefused)
          : retryPauseMs(error, failures, pauses.list);
        await clock.sleep(waitMs * (1 + random()), signal);
      }
    }
  }
}

function keyOf({ metadata: { namespace, name = '' } }: { metadata: ObjectMeta }): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** How long a starting driver waits for the API server before it continues without its answer, ms. */
const firstAnswerMs = 2_000;

/** Waits until the API server has answered the request for each list, or a request has failed, for two seconds at most. */
export async function firstAnswers(clock: Clock, lists: readonly { whenAnswered(): Promise<void> }[]): Promise<void> {
  await resolvesWithin(clock, firstAnswerMs, Promise.all(lists.map((list) => list.whenAnswered())));
}
