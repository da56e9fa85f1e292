import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A separate file system in memory that a test can fill up or make read-only. */
export class SmallDisk implements Disposable {
  readonly path: string;
  readonly #ballast: string;
  #mounted = true;

  /** @param dir mount point; created if missing */
  constructor(dir: string, sizeBytes: number) {
    mkdirSync(dir, { recursive: true });
    this.path = dir;
    this.#ballast = join(dir, '.ballast');
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeBytes},mode=755`, 'netdra-small', dir]);
  }

  /** Leaves room for this many pages of 4 KiB. */
  fill(freePages: number): void {
    this.empty();
    const { bavail, bsize } = statfsSync(this.path);
    writeFileSync(this.#ballast, Buffer.alloc(Math.max(0, bavail - freePages) * bsize));
  }

  empty(): void {
    rmSync(this.#ballast, { force: true });
  }

  setReadOnly(readOnly: boolean): void {
    execFileSync('mount', ['-o', `remount,${readOnly ? 'ro' : 'rw'}`, this.path]);
  }

  [Symbol.dispose](): void {
    if (!this.#mounted) return;
    this.#mounted = false;
    execFileSync('umount', ['--lazy', this.path]);
  }
}
