import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/lib/clock.ts';
import { createExec, maxStderrBytes, maxStdoutBytes } from '../../../../src/node/cni/exec.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const exec = createExec(systemClock);
const never = new AbortController().signal;
let dir: ReturnType<typeof tempDir>;
beforeEach(() => {
  dir = tempDir();
});
afterEach(() => dir[Symbol.dispose]());

function script(body: string): string {
  const path = join(dir.path, 'program');
  writeFileSync(path, `#!/bin/sh\n${body}\n`);
  chmodSync(path, 0o755);
  return path;
}
const run = (body: string, { stdin = '', signal = never } = {}) =>
  exec({ path: script(body), env: { PATH: process.env.PATH!, A: 'b' }, stdin, signal });

/** The process is gone, or is only waiting for its parent to take notice. */
function isDead(pid: string): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return true;
  return /\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
}

describe('createExec', () => {
  it('passes the program its input and only the given environment', async () => {
    const outcome = await run(`cat; tr '\\0' ' ' </proc/$$/environ >&2; exit 3`, { stdin: 'input' });
    expect(outcome).toEqual({
      exitCode: 3,
      endedBy: null,
      stdout: 'input',
      stderr: `PATH=${process.env.PATH} A=b `,
      overflowed: false,
    });
  });

  it('accepts a program that ends without reading all of a long input', async () => {
    expect(await run('echo done', { stdin: 'x'.repeat(1 << 20) })).toMatchObject({ exitCode: 0, stdout: 'done\n' });
  });

  it('kills the program and its children when the signal aborts', async () => {
    const abort = new AbortController();
    const pidFile = join(dir.path, 'pid');
    const running = run(`sleep 1000 & echo begun >&2; echo $! >${pidFile}; wait`, { signal: abort.signal });
    while (!existsSync(pidFile) || readFileSync(pidFile, 'utf8') === '') await sleep(5);
    const child = readFileSync(pidFile, 'utf8').trim();
    expect(isDead(child)).toBe(false);
    abort.abort();
    expect(await running).toMatchObject({ exitCode: null, endedBy: 'SIGKILL', stderr: 'begun\n' });
    await expect.poll(() => isDead(child)).toBe(true);
  });

  it('kills a program at once if the signal is already aborted', async () => {
    expect(await run('sleep 1000', { signal: AbortSignal.abort() })).toMatchObject({ endedBy: 'SIGKILL' });
  });

  it('does not wait for children that keep the output open', async () => {
    const pidFile = join(dir.path, 'pid');
    const startedMs = performance.now();
    const outcome = await run(`echo result; setsid sleep 1000 & echo $! >${pidFile}`);
    expect(outcome).toMatchObject({ exitCode: 0, stdout: 'result\n' });
    expect(performance.now() - startedMs).toBeLessThan(5000);
    process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
  });

  it('accepts output up to the limit, and kills a program that writes more', async () => {
    const most = await run(`head -c ${maxStdoutBytes} /dev/zero | tr '\\0' x`);
    expect(most).toMatchObject({ exitCode: 0, overflowed: false });
    expect(most.stdout).toBe('x'.repeat(maxStdoutBytes));
    const more = await run(`yes`);
    expect(more).toMatchObject({ exitCode: null, overflowed: true });
    expect(more.stdout.length).toBeLessThanOrEqual(maxStdoutBytes);
  });

  it('keeps the last part of a long standard error', async () => {
    const { stderr } = await run(`head -c 300000 /dev/zero | tr '\\0' x >&2; echo end >&2`);
    expect(stderr).toBe(`${'x'.repeat(maxStderrBytes - 4)}end\n`);
  });
});
