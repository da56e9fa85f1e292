import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const bytes = 2 * 2 ** 30;

/**
 * The disk of the measured programs: ext4 with a journal, as nodes have it, in a file. Without a journal, as on some virtual
 * machines, ext4 does not reuse an inode for minutes after it was freed, and examines all of these inodes each time
 * it creates one: half of the time of any program that keeps creating and removing files, as benches do and nodes do not.
 * Source: Linux `fs/ext4/ialloc.c`, `recently_deleted`.
 */
export class BenchDisk implements Disposable {
  readonly dir: string;
  /** For the reports. */
  readonly description: string;
  readonly #folder: string;
  readonly #isMounted: boolean;

  /** Where there are no loop devices, as in some containers, a folder must do. */
  constructor() {
    // Not below the temporary folder, which is in memory on a test node.
    this.#folder = mkdtempSync('/var/tmp/netdra-bench-');
    this.dir = join(this.#folder, 'disk');
    mkdirSync(this.dir);
    this.#isMounted = existsSync('/dev/loop-control');
    this.description = this.#isMounted ? 'ext4 with a journal' : 'the file system of /var/tmp';
    if (this.#isMounted) mountImage(join(this.#folder, 'image'), this.dir);
  }

  [Symbol.dispose]() {
    // Lazily: a process that ends late must not leave the image behind.
    if (this.#isMounted) execFileSync('umount', ['-l', this.dir]);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function mountImage(image: string, dir: string): void {
  writeFileSync(image, '');
  truncateSync(image, bytes);
  execFileSync('mkfs.ext4', ['-q', image]);
  execFileSync('mount', ['-o', 'loop', image, dir]);
}
