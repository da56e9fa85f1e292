import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openFileMutex } from '../../../../src/framework/kubeletplugin/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

it('openFileMutex shares the keys of a file with other instances', async () => {
  using dir = tempDir();
  const path = join(dir.path, 'driver', 'own.lock');
  using first = openFileMutex(path);
  using second = openFileMutex(path);
  const held = await first.acquireAll(['claim']);
  const isFree = second.acquireAll(['claim']).then((lock) => lock);
  await (await second.acquireAll(['other']))[Symbol.dispose]();
  const early = await Promise.race([isFree.then(() => true), new Promise((resolve) => setTimeout(resolve, 50, false))]);
  expect(early).toBe(false);
  held[Symbol.dispose]();
  (await isFree)[Symbol.dispose]();
});

it('openFileMutex fails with the path if it cannot create the file', () => {
  using dir = tempDir();
  // A directory has the name of the file.
  expect(() => openFileMutex(dir.path)).toThrow(expect.objectContaining({ code: 'lock-unavailable', path: dir.path }));
});
