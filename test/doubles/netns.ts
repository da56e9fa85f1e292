import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NetnsHandle } from '../../src/node/netlink/index.ts';

/**
 * A network namespace for a test, bound to a file as by container runtimes. Needs root, `unshare` and
 * `umount` (util-linux) and `ip` (iproute2), and fails if one is missing.
 */
export class TestNetns implements Disposable {
  readonly path: string;
  readonly #dir: string;
  #mounted = true;

  constructor(name = 'netns') {
    this.#dir = mkdtempSync(join(tmpdir(), 'netdra-netns-'));
    this.path = join(this.#dir, name);
    writeFileSync(this.path, '');
    try {
      run('unshare', [`--net=${this.path}`, 'true']);
    } catch (error) {
      rmSync(this.#dir, { recursive: true });
      throw error;
    }
  }

  open(): NetnsHandle {
    return NetnsHandle.open(this.path);
  }

  /** Runs a command in the namespace and returns its standard output. */
  exec(command: string, ...args: string[]): string {
    return run('nsenter', [`--net=${this.path}`, '--', command, ...args]);
  }

  /** `ip -j` in the namespace: the reference for our own reading. */
  // biome-ignore lint/suspicious/noExplicitAny: the shape is iproute2's
  ip(...args: string[]): any {
    return JSON.parse(this.exec('ip', '-j', '-d', ...args) || '[]');
  }

  /** Like a runtime when the pod ends: the file remains, the namespace does not. */
  unmount(): void {
    if (!this.#mounted) return;
    this.#mounted = false;
    run('umount', ['--lazy', this.path]); // like containerd
  }

  [Symbol.dispose](): void {
    this.unmount();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

function run(command: string, args: string[]): string {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    const hint = missing ? 'it is not installed: apt-get install util-linux iproute2' : 'is this root?';
    throw new Error(`${command} ${args.join(' ')} failed (${hint})`, { cause });
  }
}
