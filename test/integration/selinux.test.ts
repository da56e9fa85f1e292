import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import { describe, expect, it } from 'vitest';
import { containerLabel, labelForContainers } from '../../src/app/selinux.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const lgetxattr = koffi.load(null).func('long lgetxattr(const char *path, const char *name, void *value, size_t size)');

/** As the kernel has it. It stores labels without a policy, too, which the machine of the tests does not have. */
function labelOf(path: string): string | undefined {
  const value = Buffer.alloc(256);
  const bytes = Number(lgetxattr(path, 'security.selinux', value, value.length));
  return bytes < 0 ? undefined : value.toString('utf8', 0, bytes);
}

describe('labelForContainers', () => {
  it('labels directories and their contents, creates missing directories, and follows no symlink', () => {
    using dir = tempDir();
    const at = (path: string) => join(dir.path, path);
    mkdirSync(at('metadata/claim'), { recursive: true });
    for (const path of ['metadata/claim/file.json', 'outside', 'enforce']) writeFileSync(at(path), '');
    symlinkSync(at('outside'), at('metadata/link'));
    labelForContainers([at('metadata'), at('bin')], { enforce: at('enforce') });
    for (const path of ['metadata', 'metadata/claim', 'metadata/claim/file.json', 'bin']) {
      expect(labelOf(at(path)), path).toBe(`${containerLabel}\0`);
    }
    expect(labelOf(at('outside'))).toBeUndefined();
  });

  it('changes nothing if SELinux is off', () => {
    using dir = tempDir();
    labelForContainers([join(dir.path, 'bin')], { enforce: join(dir.path, 'enforce') });
    expect(existsSync(join(dir.path, 'bin'))).toBe(false);
  });

  it('names a file that cannot be labelled, and the setting to change', () => {
    using dir = tempDir();
    writeFileSync(join(dir.path, 'enforce'), '');
    // A file system without such attributes.
    expect(() => labelForContainers(['/proc/self/fdinfo'], { enforce: join(dir.path, 'enforce') })).toThrow(
      expect.objectContaining({ code: 'selinux-label', hint: expect.stringContaining('spc_t') }),
    );
  });
});
