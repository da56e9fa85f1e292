import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { installProfile, profileText } from '../../../src/cli/seccomp.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const shipped = readFileSync(new URL('../../../deploy/seccomp/netdra.json', import.meta.url), 'utf8');

describe('netdra seccomp', () => {
  it('installs the bundled profile, creating directories and replacing an older version', () => {
    using dir = tempDir();
    const path = join(dir.path, 'seccomp/sriov.netdra.dev/0.1.0.json');
    installProfile(path);
    expect(readFileSync(path, 'utf8')).toBe(shipped);
    expect(profileText).toBe(shipped);
    // The runtime reads it, as root or not.
    expect(statSync(path).mode & 0o777).toBe(0o644);
    writeFileSync(path, 'an older one');
    const before = statSync(path).ino;
    installProfile(path);
    expect(readFileSync(path, 'utf8')).toBe(shipped);
    // Another file: a runtime that has just opened the older one reads all of that.
    expect(statSync(path).ino).not.toBe(before);
    expect(readdirSync(join(path, '..'))).toEqual(['0.1.0.json']);
  });

  it('names the setting to change if the profile cannot be installed', () => {
    using dir = tempDir();
    writeFileSync(join(dir.path, 'file'), '');
    expect(() => installProfile(join(dir.path, 'file/x.json'))).toThrow(
      expect.objectContaining({
        code: 'seccomp-not-installed',
        hint: expect.stringContaining('kubeletPlugin.seccomp.profile to RuntimeDefault'),
      }),
    );
  });
});
