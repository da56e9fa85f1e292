import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { type CacheEntry, removeCacheEntries, takeCacheEntries } from '../../../scripts/packages/cache.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

it('a removed entry of the cache is built again of the newest inputs, and others stay', () => {
  using dir = tempDir();
  let newest = 1;
  const [image, other] = ['image', 'other'].map((name) => ({
    name,
    inputs: { packages: ['libssl3'] },
    build: (folder: string) => writeFileSync(join(folder, 'libssl3'), `version ${newest}`),
  })) as [CacheEntry, CacheEntry];
  const readVersions = () => {
    const { folders, lock } = takeCacheEntries(dir.path, [image, other]);
    lock[Symbol.dispose]();
    return folders.map((folder) => readFileSync(join(folder, 'libssl3'), 'utf8'));
  };
  readVersions();
  newest = 2;
  expect(readVersions()).toEqual(['version 1', 'version 1']);
  removeCacheEntries(dir.path, [image]);
  expect(readVersions()).toEqual(['version 2', 'version 1']);
  expect(readdirSync(dir.path)).toHaveLength(3);
});
