import type { Clock } from '../../lib/clock.ts';
import { FileLock, type LockByte } from '../../lib/file-lock.ts';
import { intercept } from '../../lib/intercept.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import { KubeletPluginError } from './errors.ts';
import type { MetadataFiles } from './plugin-calls.ts';

/** `RESERVED_BYTE` of SQLite, by which earlier versions locked the file: one may run beside us in a rolling update. */
const lockedByte = 0x40000001;
/** A hook that updates metadata has 2 s in all. */
const metadataTimeoutMs = 1_500;

/** A lock between the instances of a driver that all tasks of one instance share: it is held while any of them runs. */
export class InstanceLock implements Disposable {
  readonly #path: string;
  readonly #lock: FileLock;
  readonly #turns = new KeyedMutex();
  #users = 0;
  #held: Disposable | undefined;

  /** @throws KubeletPluginError `lock-unavailable` */
  constructor(path: string, clock: Clock, lockByte?: LockByte) {
    this.#path = path;
    this.#lock = new FileLock(path, clock, KubeletPluginError, lockByte);
  }

  /** @throws KubeletPluginError `lock-unavailable`, `call-aborted` if the signal fires first */
  async acquire(signal: AbortSignal): Promise<Disposable> {
    try {
      // Each task waits with its own signal, so only one at a time waits for the lock; the next ones find it held.
      using _ = await this.#turns.acquire('', signal);
      this.#held ??= await this.#lock.acquire(lockedByte, signal);
      this.#users++;
    } catch (cause) {
      if (!signal.aborted) throw cause;
      const message = `another instance holds lock ${this.#path}`;
      throw new KubeletPluginError('call-aborted', message, { cause, path: this.#path, retriable: true });
    }
    return { [Symbol.dispose]: () => this.#release() };
  }

  /** Releases the lock, also if tasks hold it. */
  [Symbol.dispose](): void {
    this.#lock[Symbol.dispose]();
  }

  #release(): void {
    this.#users--;
    if (this.#users > 0) return;
    this.#held?.[Symbol.dispose]();
    this.#held = undefined;
  }
}

/**
 * The same files for two instances of a driver: the lock makes reading a generation and writing the next one atomic.
 * Calls of this instance about different claims need not wait for each other.
 */
export function shareMetadataFiles(files: MetadataFiles, lock: InstanceLock, clock: Clock): MetadataFiles {
  return intercept(files, async ({ next }) => {
    using deadline = clock.deadline(metadataTimeoutMs);
    using _ = await lock.acquire(deadline.signal);
    return await next();
  });
}
