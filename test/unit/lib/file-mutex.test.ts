import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StateError } from '../../../src/driver/model/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { CloseWatch, type FileWait } from '../../../src/lib/close-watch.ts';
import { FileMutex } from '../../../src/lib/file-mutex.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const holderPath = fileURLToPath(new URL('fixtures/lock-holder.ts', import.meta.url));

describe('FileMutex', { timeout: 60_000 }, () => {
  let dir: ReturnType<typeof tempDir>;
  let path: string;
  let stack: DisposableStack;
  beforeEach(() => {
    stack = new DisposableStack();
    dir = stack.use(tempDir());
    path = join(dir.path, 'made', 'claims.lock');
  });
  afterEach(() => stack.dispose());

  /** @param wait by default without a clock that goes on: nothing is tried again without an event */
  const open = (wait: FileWait = new CloseWatch(new ManualClock())) => stack.use(new FileMutex(path, wait, StateError));

  function start(end: 'exit' | 'eof', keys: string[]): ChildProcess {
    const child = spawn(process.execPath, [holderPath, path, end, ...keys], { stdio: ['pipe', 'pipe', 'inherit'] });
    stack.defer(() => child.kill('SIGKILL'));
    return child;
  }

  /** Another process that has the keys. */
  async function startHolder(...keys: string[]): Promise<ChildProcess> {
    const child = start('eof', keys);
    expect(String(await once(child.stdout!, 'data'))).toBe('locked\n');
    return child;
  }

  /** Resolves to whether the keys came within a moment. */
  async function comesAtOnce(mutex: FileMutex, ...keys: string[]): Promise<boolean> {
    using deadline = systemClock.deadline(100);
    return await mutex.acquireAll(keys, deadline.signal).then(
      (held) => {
        held[Symbol.dispose]();
        return true;
      },
      (error) => {
        expect(error).toBe(deadline.signal.reason);
        return false;
      },
    );
  }

  it('locks several keys, named in any order, against other tasks and processes', async () => {
    const [ours, theirs] = [open(), open()];
    const running = new Set<string>();
    const runAll = async (mutex: FileMutex, keys: string[]) => {
      using _ = await mutex.acquireAll(keys);
      for (const key of new Set(keys)) {
        expect(running).not.toContain(key);
        running.add(key);
      }
      await systemClock.sleep(3);
      for (const key of keys) running.delete(key);
    };
    const calls = [['a', 'b'], ['b', 'a', 'b'], ['c', 'a'], ['b', 'c'], ['b'], []];
    await Promise.all(calls.flatMap((keys) => [runAll(ours, keys), runAll(theirs, keys), runAll(ours, ['d'])]));
    expect(running.size).toBe(0);
  });

  it('releases its keys if a task fails', async () => {
    const [ours, theirs] = [open(), open()];
    await expect(ours.run('a', () => Promise.reject(new Error('of the task')))).rejects.toThrow('of the task');
    expect(await theirs.run('a', async () => 'free')).toBe('free');
  });

  it('is awaited without polling until its holder releases it or ends', async () => {
    const mutex = open();
    for (const end of ['eof', 'kill']) {
      const child = await startHolder('a', 'b');
      expect([await comesAtOnce(mutex, 'b'), await comesAtOnce(mutex, 'c')]).toEqual([false, true]);
      const waiting = ['a', 'b'].map((key) => mutex.run(key, async () => key));
      const exit = once(child, 'exit');
      if (end === 'kill') child.kill('SIGKILL');
      else child.stdin?.end();
      expect(await Promise.all(waiting)).toEqual(['a', 'b']);
      expect(await exit).toEqual(end === 'kill' ? [null, 'SIGKILL'] : [0, null]);
    }
  });

  it('polls every 10 ms if the kernel reports nothing', async () => {
    const clock = new ManualClock();
    const held = await open().acquire('a');
    const tries: number[] = [];
    const polling = { until: (_: number, isMet: () => boolean) => new CloseWatch(clock).until(-1, isMet) };
    const waiting = open({
      until: (descriptor, isMet) => polling.until(descriptor, () => tries.push(clock.nowMs()) > 0 && isMet()),
    }).acquire('a');
    await systemClock.sleep(5);
    held[Symbol.dispose]();
    clock.advance(9);
    await systemClock.sleep(5);
    expect(new Set(tries).size).toBe(1);
    clock.advance(1);
    (await waiting)[Symbol.dispose]();
  });

  it('does not keep a waiting process alive', async () => {
    const held = await open().acquire('a');
    expect(await once(start('exit', ['a']), 'exit')).toEqual([7, null]);
    held[Symbol.dispose]();
  });

  it('writes nothing, so that a crash leaves no lock behind', async () => {
    const child = await startHolder('a');
    const entries = () => readdirSync(join(path, '..')).map((name) => [name, statSync(join(path, '..', name)).size]);
    expect(entries()).toEqual([['claims.lock', 0]]);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(entries()).toEqual([['claims.lock', 0]]);
  });

  it('stays locked, so that other tasks wait, if its file is removed', async () => {
    const held = await open().acquire('a');
    const mutex = open();
    const waiting = mutex.acquire('a');
    rmSync(path);
    const other = mutex.acquire('b');
    (await other)[Symbol.dispose]();
    held[Symbol.dispose]();
    (await waiting)[Symbol.dispose]();
  });

  it('rejects a directory as its file', () => {
    mkdirSync(path, { recursive: true });
    expect(() => open()).toThrow(
      expect.objectContaining({ code: 'lock-unavailable', message: `cannot lock file ${path}` }),
    );
  });
});
