import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InstanceLock } from '../../../../src/framework/kubeletplugin/instance-lock.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const holderPath = fileURLToPath(new URL('fixtures/lock-holder.ts', import.meta.url));
const never = new AbortController().signal;

let dir: ReturnType<typeof tempDir>;
let children: ChildProcess[];
beforeEach(() => {
  dir = tempDir();
  children = [];
});
afterEach(async () => {
  for (const child of children) {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  }
  dir[Symbol.dispose]();
});

const sqliteLock = `
  import { DatabaseSync } from 'node:sqlite';
  const database = new DatabaseSync(process.argv.at(-1), { timeout: 0 });
  database.exec('PRAGMA journal_mode = MEMORY');
  database.exec('BEGIN IMMEDIATE');
  console.log('locked');
  process.stdin.resume();
`;
const sqliteHolder = ['--input-type=module', '--eval', sqliteLock, '--'];

/** @returns what SQLite says */
async function takesBySqlite(path: string): Promise<string | undefined> {
  const child = spawn(process.execPath, [...sqliteHolder, path], { stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(child);
  return /database is locked/.exec(await text(child.stderr!))?.[0];
}

/** Another process that has the lock. */
async function startHolder(path: string, program = [holderPath]): Promise<ChildProcess> {
  const child = spawn(process.execPath, [...program, path], { stdio: ['pipe', 'pipe', 'inherit'] });
  children.push(child);
  const [line] = await once(child.stdout!, 'data');
  expect(String(line)).toBe('locked\n');
  return child;
}

/** Resolves to whether the lock came within a moment. */
async function comesAtOnce(lock: InstanceLock): Promise<boolean> {
  using deadline = systemClock.deadline(100);
  return await lock.acquire(deadline.signal).then(
    (held) => {
      held[Symbol.dispose]();
      return true;
    },
    () => false,
  );
}

describe('InstanceLock', { timeout: 60_000 }, () => {
  it('is held by one instance at a time', async () => {
    const path = join(dir.path, 'made', 'calls.lock');
    const locks = Array.from({ length: 4 }, () => new InstanceLock(path, systemClock));
    let holders = 0;
    let most = 0;
    let turns = 0;
    await Promise.all(
      locks.map(async (lock) => {
        for (let turn = 0; turn < 5; turn++, turns++) {
          using _ = await lock.acquire(never);
          most = Math.max(most, ++holders);
          await systemClock.sleep(1);
          holders--;
        }
      }),
    );
    expect({ most, turns }).toEqual({ most: 1, turns: 20 });
  });

  it('keeps other processes out until it is released', async () => {
    const path = join(dir.path, 'calls.lock');
    const child = await startHolder(path);
    const lock = new InstanceLock(path, systemClock);
    expect(await comesAtOnce(lock)).toBe(false);
    const waiting = lock.acquire(never);
    const exit = once(child, 'exit');
    child.stdin?.end();
    using _ = await waiting;
    expect(await exit).toEqual([0, null]);
  });

  it('is free when its holder is killed', async () => {
    const path = join(dir.path, 'calls.lock');
    const child = await startHolder(path);
    const lock = new InstanceLock(path, systemClock);
    const waiting = lock.acquire(never);
    child.kill('SIGKILL');
    using _ = await waiting;
    expect(await comesAtOnce(new InstanceLock(path, systemClock))).toBe(false);
  });

  it('writes nothing, so that a crash can leave nothing', async () => {
    const path = join(dir.path, 'calls.lock');
    const child = await startHolder(path);
    const entries = () => readdirSync(dir.path).map((name) => [name, statSync(join(dir.path, name)).size]);
    expect(entries()).toEqual([['calls.lock', 0]]);
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    expect(entries()).toEqual([['calls.lock', 0]]);
  });

  it('tells who waits in vain which lock it is', async () => {
    const path = join(dir.path, 'calls.lock');
    using _ = await new InstanceLock(path, systemClock).acquire(never);
    using deadline = systemClock.deadline(30);
    await expect(new InstanceLock(path, systemClock).acquire(deadline.signal)).rejects.toMatchObject({
      code: 'call-aborted',
      message: `another instance holds lock ${path}`,
    });
  });

  it('is no lock when the file is a directory', () => {
    const path = join(dir.path, 'calls.lock');
    mkdirSync(path);
    expect(() => new InstanceLock(path, systemClock)).toThrow(
      expect.objectContaining({ code: 'lock-unavailable', message: `cannot lock file ${path}` }),
    );
  });

  it('keeps out, and is kept out by, a version that locks the file by SQLite', async () => {
    const path = join(dir.path, 'calls.lock');
    const lock = new InstanceLock(path, systemClock);
    expect(await comesAtOnce(lock)).toBe(true);
    const held = await lock.acquire(never);
    expect(await takesBySqlite(path)).toBe('database is locked');
    held[Symbol.dispose]();
    const child = await startHolder(path, sqliteHolder);
    expect(await comesAtOnce(lock)).toBe(false);
    child.kill('SIGKILL');
    using _ = await lock.acquire(never);
  });
});
