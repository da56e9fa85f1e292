import { hash } from 'node:crypto';
import type { Clock } from '../../lib/clock.ts';
import { FileLock, type LockByte } from '../../lib/file-lock.ts';
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
  readonly #lock: FileLock;

  /** @throws StateError `lock-unavailable` */
  constructor(path: string, clock: Clock, lockByte?: LockByte) {
    this.#lock = new FileLock(path, clock, StateError, lockByte);
  }

  async run<T>(claimUid: string, task: () => Promise<T>): Promise<T> {
    return await this.runAll([claimUid], task);
  }

  async runAll<T>(claimUids: readonly string[], task: () => Promise<T>): Promise<T> {
    using held = new DisposableStack();
    // Each once and always in the same order, so that two calls never wait for each other.
    const offsets = [...new Set(claimUids.map(offsetOf))].sort((a, b) => a - b);
    for (const offset of offsets) held.use(await this.#lock.acquire(offset));
    return await task();
  }

  [Symbol.dispose](): void {
    this.#lock[Symbol.dispose]();
  }
}

/** Two claims with the same offset wait for each other, which is harmless and rare. */
function offsetOf(claimUid: string): number {
  return hash('sha256', claimUid, 'buffer').readUIntBE(0, 6);
}
