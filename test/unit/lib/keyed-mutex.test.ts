import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { KeyedMutex } from '../../../src/lib/keyed-mutex.ts';

describe('KeyedMutex', () => {
  it('runs tasks in order, one at a time or up to its limit, even after a failed task', async () => {
    const log: string[] = [];
    const task = (name: string) => async () => {
      log.push(`begin ${name}`);
      await turn();
      if (name === 'a') throw new Error('of a');
      log.push(`end ${name}`);
    };
    const runAll = async (mutex: KeyedMutex) => {
      const tasks = ['a', 'b', 'c'].map((name) => mutex.run('key', task(name)));
      expect(log.splice(0)).toEqual([]);
      await Promise.allSettled(tasks);
      return log.splice(0);
    };
    expect(await runAll(new KeyedMutex())).toEqual(['begin a', 'begin b', 'end b', 'begin c', 'end c']);
    expect(await runAll(new KeyedMutex(2))).toEqual(['begin a', 'begin b', 'begin c', 'end b', 'end c']);
  });

  it('skips a task whose signal aborts while it waits, under one key or several', async () => {
    const mutex = new KeyedMutex();
    const stop = new AbortController();
    const first = await mutex.acquire('b');
    const late = mutex.acquireAll(['b', 'a'], stop.signal);
    const next = mutex.acquireAll(['b', 'b']);
    await turn();
    expect(mutex.waiting).toBe(2);
    stop.abort(new Error('too late'));
    await expect(late).rejects.toThrow('too late');
    expect(await mutex.run('a', async () => 'free')).toBe('free');
    first[Symbol.dispose]();
    (await next)[Symbol.dispose]();
    expect(mutex.waiting).toBe(0);
    await expect(mutex.run('b', async () => 'late', stop.signal)).rejects.toThrow('too late');
  });
});
