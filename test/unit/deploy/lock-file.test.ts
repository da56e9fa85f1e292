import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { findUnlocked } from '../../../deploy/image/lock-file.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

describe('findUnlocked', () => {
  it('finds no problem in package-lock.json of this repository', () => {
    expect(findUnlocked(fileURLToPath(new URL('../../../', import.meta.url)))).toEqual([]);
  });

  it('finds packages that are missing, have no hash, or differ in version or content', () => {
    using dir = tempDir();
    mkdirSync(join(dir.path, 'node_modules'));
    const write = (path: string, packages: object) => writeFileSync(join(dir.path, path), JSON.stringify({ packages }));
    const locked = { version: '1.0.0', integrity: 'sha512-a' };
    const names = ['same', 'older', 'other', 'unhashed'].map((name) => `node_modules/${name}`);
    write('package-lock.json', {
      '': {},
      ...Object.fromEntries(names.map((name) => [name, locked])),
      'node_modules/unhashed': { version: '1.0.0' },
    });
    write('node_modules/.package-lock.json', {
      'node_modules/same': locked,
      'node_modules/older': { ...locked, version: '0.9.0' },
      'node_modules/other': { ...locked, integrity: 'sha512-b' },
      'node_modules/unhashed': locked,
      'node_modules/unknown': locked,
    });
    expect(findUnlocked(dir.path)).toEqual([
      expect.stringContaining('node_modules/older is 0.9.0, not 1.0.0'),
      expect.stringContaining('node_modules/other is 1.0.0'),
      'node_modules/unhashed has no integrity in package-lock.json',
      'node_modules/unknown is not in package-lock.json',
    ]);
  });
});
