import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, it } from 'vitest';
import { tempDir } from '../../../doubles/temp-dir.ts';

// B12
it('/healthz fails only while all threads of the thread pool are blocked', { timeout: 30_000 }, async () => {
  using dir = tempDir();
  const fifo = join(dir.path, 'fifo');
  execFileSync('mkfifo', [fifo]);
  using stack = new DisposableStack();
  const start = (command: string, args: string[]) => {
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    stack.defer(() => void child.kill('SIGKILL'));
    return child;
  };
  const server = start(process.execPath, [join(import.meta.dirname, 'blocked-pool.ts'), fifo]);
  const lines = createInterface(server.stdout);
  const [port] = await once(lines, 'line');
  const healthz = async () => {
    const response = await fetch(`http://127.0.0.1:${port}/healthz`);
    return [response.status, await response.text()];
  };
  expect(await healthz()).toEqual([200, 'ok\n']);
  server.stdin.write('\n');
  expect(await once(lines, 'line')).toEqual(['blocked']);
  // Before the kubelet gives the probe up, which it does after 5 s.
  const signal = AbortSignal.timeout(5_000);
  expect(await healthz()).toEqual([503, 'cannot read files: the thread pool is blocked\n']);
  expect(signal.aborted).toBe(false);
  start('sh', ['-c', 'exec 3>"$1"; exec sleep 30', 'sh', fifo]);
  await expect.poll(healthz, { timeout: 10_000 }).toEqual([200, 'ok\n']);
});
