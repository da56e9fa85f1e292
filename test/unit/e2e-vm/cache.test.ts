import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CacheEntry, takeCacheEntries } from '../../../scripts/packages/cache.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

let dir: ReturnType<typeof tempDir>;
beforeEach(() => {
  dir = tempDir();
});
afterEach(() => dir[Symbol.dispose]());

function entryOf(inputs: unknown, built: unknown[]): CacheEntry {
  return {
    name: 'disk',
    inputs,
    build: (folder) => {
      built.push(inputs);
      writeFileSync(join(folder, 'file'), JSON.stringify(inputs));
    },
  };
}

/** @returns the folder, after the lock was given back */
function take(entry: CacheEntry): string {
  const { folders, lock } = takeCacheEntries(dir.path, [entry]);
  lock[Symbol.dispose]();
  return folders[0] ?? '';
}

describe('the cache', () => {
  it('builds an entry once, and anew when its inputs change', () => {
    const built: unknown[] = [];
    const first = take(entryOf(1, built));
    expect(take(entryOf(1, built))).toBe(first);
    expect(readFileSync(join(first, 'file'), 'utf8')).toBe('1');
    const second = take(entryOf(2, built));
    expect(built).toEqual([1, 2]);
    expect(existsSync(first)).toBe(false);
    expect(readFileSync(join(second, 'file'), 'utf8')).toBe('2');
  });

  it('keeps nothing of a build that failed, and builds again', () => {
    const failing: CacheEntry = {
      ...entryOf(1, []),
      build: (folder) => {
        writeFileSync(join(folder, 'half'), '');
        throw new Error('planted failure');
      },
    };
    expect(() => take(failing)).toThrow('planted failure');
    expect(readdirSync(dir.path)).toEqual(['lock']);
    const built: unknown[] = [];
    take(entryOf(1, built));
    expect(built).toEqual([1]);
  });

  it('may be used by several at a time', () => {
    const built: unknown[] = [];
    const { folders, lock } = takeCacheEntries(dir.path, [entryOf(1, built)]);
    using _lock = lock;
    expect(take(entryOf(1, built))).toBe(folders[0]);
    expect(built).toEqual([1]);
  });
});
