import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import type { FileLock } from './file-lock.ts';

const key = 'lock';

/** A lock between processes that all tasks of this process share: it is held while any of them runs. */
export class SharedLock {
  readonly #lock: FileLock | undefined;
  readonly #mutex = new KeyedMutex();
  #held: { users: number; lock: Disposable } | undefined;

  /** @param lock absent: there are no other processes */
  constructor(lock: FileLock | undefined) {
    this.#lock = lock;
  }

  /** @throws KubeletPluginError `lock-unavailable`, `call-aborted` */
  async acquire(signal: AbortSignal): Promise<Disposable> {
    const lock = this.#lock;
    if (lock === undefined) return { [Symbol.dispose]: () => undefined };
    // Each task waits with its own signal, so only one at a time waits for the lock; the next ones find it held.
    if (this.#held === undefined) {
      await this.#mutex.run(key, async () => {
        this.#held ??= { users: 0, lock: await lock.acquire(signal) };
        this.#held.users += 1;
      });
    } else this.#held.users += 1;
    return { [Symbol.dispose]: () => this.#letGo() };
  }

  #letGo(): void {
    if (this.#held === undefined) return;
    this.#held.users -= 1;
    if (this.#held.users > 0) return;
    this.#held.lock[Symbol.dispose]();
    this.#held = undefined;
  }
}
