import { type FSWatcher, watch } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { type Clock, resolvesWithin, systemClock } from '../../../lib/clock.ts';
import { isNotWritten } from './reader.ts';
import { type ReaderOptions, type RequestMetadata, type RequestQuery, readRequestMetadata } from './request-reader.ts';

export interface WatchOptions extends ReaderOptions {
  /** Ends the iteration, which throws the signal's reason. */
  signal?: AbortSignal;
  /** Interval of reads without a notification, ms. Default: 1000. */
  pollMs?: number;
  /**
   * Whether notifications of the file system are used besides polling; `false` for file systems without notifications. Default:
   * true.
   */
  notify?: boolean;
  clock?: Clock;
}

/**
 * Yields a container's metadata of a request, at first and after each change by a driver. Changes that come faster than the
 * consumer reads are merged. Files are changed in place, so that a watch on a mounted file sees them. Yields nothing while a
 * file is empty, since its driver has withdrawn the content.
 * @throws MetadataError as `readRequestMetadata`; a file that is missing or empty at the start is an error, too
 */
export async function* watchRequestMetadata(
  query: RequestQuery,
  options: WatchOptions = {},
): AsyncGenerator<RequestMetadata, never> {
  const { signal, pollMs = 1_000, clock = systemClock, notify = true } = options;
  using changes = new FileChanges();
  for (let last: RequestMetadata | undefined; ; ) {
    signal?.throwIfAborted();
    // The promise is created before the read, so that changes during the read are not missed.
    const changed = changes.next();
    const metadata = await readUnlessWithdrawn(query, options, last);
    // The generation is not enough: drivers on the Go helper begin again at 1 when a claim is prepared again.
    if (!isDeepStrictEqual(metadata, last)) {
      last = metadata;
      yield metadata;
    }
    if (notify && changes.follow(metadata.files.map(({ path }) => path))) continue;
    await resolvesWithin(clock, pollMs, changed, signal);
  }
}

/** Reads the metadata. If a file is empty, returns the last result, which then counts as no change. */
async function readUnlessWithdrawn(query: RequestQuery, options: ReaderOptions, last: RequestMetadata | undefined) {
  try {
    return await readRequestMetadata(query, options);
  } catch (error) {
    if (last === undefined || !isNotWritten(error)) throw error;
    return last;
  }
}

class FileChanges implements Disposable {
  readonly #watchers = new Map<string, FSWatcher>();
  #changed = Promise.withResolvers<void>();

  next(): Promise<void> {
    this.#changed = Promise.withResolvers<void>();
    return this.#changed.promise;
  }

  /** Watches files. @returns whether a file is newly watched, and may have changed before the watch began */
  follow(paths: readonly string[]): boolean {
    let isNew = false;
    for (const path of paths) {
      if (this.#watchers.has(path)) continue;
      try {
        const watcher = watch(path, () => {
          // Another file may have this name now; the kernel does not distinguish this from other changes.
          this.#drop(path);
          this.#changed.resolve();
        });
        watcher.on('error', () => this.#drop(path));
        this.#watchers.set(path, watcher);
        isNew = true;
      } catch {
        // The limit of watches is reached, or the file system has none: polling finds the change.
      }
    }
    return isNew;
  }

  #drop(path: string): void {
    this.#watchers.get(path)?.close();
    this.#watchers.delete(path);
  }

  [Symbol.dispose]() {
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }
}
