import { hash } from 'node:crypto';
import type { Clock } from '../../lib/clock.ts';
import { FileLock } from '../../lib/file-lock.ts';
import { StateError } from './errors.ts';

/** Serializes work on the VFs of a claim. */
export interface Locks {
  /** Runs the task when no other task for the same claim runs, in this instance of the driver or in another one. */
  run<T>(claimUid: string, task: () => Promise<T>): Promise<T>;
  /** The same for several claims at once. */
  runAll<T>(claimUids: readonly string[], task: () => Promise<T>): Promise<T>;
}

/** One lock for each claim, in a file that instances of the driver share. */
export class ClaimLocks implements Locks, Disposable {
  readonly #path: string;
  readonly #lock: FileLock;

  /** @throws StateError `lock-unavailable` */
  constructor(path: string, clock: Clock) {
    this.#path = path;
    try {
      this.#lock = new FileLock(path, clock);
    } catch (cause) {
      throw this.#unavailable(cause);
    }
  }

  async run<T>(claimUid: string, task: () => Promise<T>): Promise<T> {
    return await this.runAll([claimUid], task);
  }

  async runAll<T>(claimUids: readonly string[], task: () => Promise<T>): Promise<T> {
    using held = new DisposableStack();
    // Each once and always in the same order, so that two calls never wait for each other.
    for (const offset of [...new Set(claimUids.map(offsetOf))].sort((a, b) => a - b)) {
      const lock = this.#lock.acquire(offset).catch((cause) => {
        throw this.#unavailable(cause);
      });
      held.use(await lock);
    }
    return await task();
  }

  [Symbol.dispose](): void {
    this.#lock[Symbol.dispose]();
  }

  #unavailable(cause: unknown): StateError {
    return new StateError('lock-unavailable', `cannot lock file ${this.#path}`, {
      cause,
      path: this.#path,
      retriable: true,
      hint: 'check the permissions of its directory, and that its file system supports locks',
    });
  }
}

/** Two claims with the same offset wait for each other, which is harmless and rare. */
function offsetOf(claimUid: string): number {
  return hash('sha256', claimUid, 'buffer').readUIntBE(0, 6);
}
