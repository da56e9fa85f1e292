import { hash } from 'node:crypto';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock } from '../../lib/clock.ts';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import { tryLockByte, unlockByte } from '../../lib/open-file-lock.ts';
import { StateError } from './errors.ts';

/** Serializes work on the VFs of a claim. */
export interface Locks {
  /** Runs the task when no other task for the same claim runs, in this instance of the driver or in another one. */
  run<T>(claimUid: string, task: () => Promise<T>): Promise<T>;
  /** The same for several claims at once. */
  runAll<T>(claimUids: readonly string[], task: () => Promise<T>): Promise<T>;
}

/** How often a lock that another instance holds is tried again. There are two instances only during a rolling update. */
const pollMs = 10;
/**
 * One lock for each claim: a byte of a file, locked by fcntl(2) for the open file, so that the kernel releases it when the
 * process ends. Within the process tasks run in the order of the calls.
 */
export class ClaimLocks implements Locks, Disposable {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #descriptor: number;
  readonly #mutex = new KeyedMutex();

  /** @throws StateError `lock-unavailable` */
  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      this.#descriptor = openSync(path, 'a+', 0o600);
    } catch (cause) {
      throw this.#unavailable(cause);
    }
  }

  async run<T>(claimUid: string, task: () => Promise<T>): Promise<T> {
    return await this.#run(offsetOf(claimUid), task);
  }

  async runAll<T>(claimUids: readonly string[], task: () => Promise<T>): Promise<T> {
    // Each once and always in the same order, so that two calls never wait for each other.
    const offsets = [...new Set(claimUids.map(offsetOf))].sort((a, b) => b - a);
    return await offsets.reduce((inner, offset) => () => this.#run(offset, inner), task)();
  }

  async #run<T>(offset: number, task: () => Promise<T>): Promise<T> {
    return await this.#mutex.run(`${offset}`, async () => {
      while (!this.#guard(() => tryLockByte(this.#descriptor, offset))) await this.#clock.sleep(pollMs);
      try {
        return await task();
      } finally {
        this.#guard(() => unlockByte(this.#descriptor, offset));
      }
    });
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }

  #guard<T>(task: () => T): T {
    try {
      return task();
    } catch (cause) {
      throw this.#unavailable(cause);
    }
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
