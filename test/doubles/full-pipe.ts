import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';

export interface FullPipe extends Disposable {
  readonly path: string;
  /** Lets the writers go on. */
  drain(): void;
}

/**
 * A pipe in the file system that is open at once and takes no more bytes: who writes to it waits in write(2), as in a write to
 * sysfs that the kernel does not return from. Unlike that one, a signal ends it.
 */
export async function fullPipe(path: string): Promise<FullPipe> {
  using stack = new DisposableStack();
  execFileSync('mkfifo', [path]);
  const start = (script: string) => {
    const child = spawn('sh', ['-c', script, 'sh', path], { stdio: ['ignore', 'pipe', 'ignore'] });
    stack.defer(() => void child.kill('SIGKILL'));
    return child;
  };
  const holder = start('exec 3<>"$1"; head -c 65536 /dev/zero >&3; echo full; exec sleep 60');
  await once(holder.stdout, 'data');
  const owned = stack.move();
  return {
    path,
    drain() {
      const child = spawn('cat', [path], { stdio: 'ignore' });
      owned.defer(() => void child.kill('SIGKILL'));
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}
