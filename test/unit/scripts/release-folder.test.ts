import { spawnSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkPublishable, checkReleaseFolder, compareSums, fillReleaseFolder } from '../../../e2e/release/folder.ts';
import { run } from '../../../scripts/packages/run.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const write = (dir: string, ...names: string[]) => {
  for (const name of names) writeFileSync(join(dir, name), '');
};

describe('the folder of a release', () => {
  it('takes the place of an earlier release', () => {
    using dir = tempDir();
    const out = join(dir.path, 'release');
    for (const name of ['first', 'second']) fillReleaseFolder(out, (made) => write(made, name, 'SHA256SUMS'));
    expect(readdirSync(out).sort()).toEqual(['SHA256SUMS', 'second']);
    expect(readdirSync(dir.path)).toEqual(['release']);
  });

  it('does not take the place of a folder that is no release', () => {
    using dir = tempDir();
    write(dir.path, 'thesis.tex');
    expect(() => checkReleaseFolder(dir.path)).toThrow(/not empty/);
    expect(() => fillReleaseFolder(dir.path, (made) => write(made, 'SHA256SUMS'))).toThrow(/not empty/);
    expect(readdirSync(dir.path)).toEqual(['thesis.tex']);
  });

  it('keeps the earlier release if the new one cannot be made', () => {
    using dir = tempDir();
    const out = join(dir.path, 'release');
    fillReleaseFolder(out, (made) => write(made, 'SHA256SUMS'));
    const fail = () => {
      throw new Error('no Helm');
    };
    expect(() => fillReleaseFolder(out, fail)).toThrow('no Helm');
    expect(readdirSync(dir.path)).toEqual(['release']);
    expect(readdirSync(out)).toEqual(['SHA256SUMS']);
  });
});

describe('compareSums', () => {
  it('finds files that differ, are missing or are new when made again', () => {
    const [first, again] = ['1  same\n2  changed\n3  missing\n', '1  same\n4  changed\n5  new\n'];
    expect(compareSums(first, first)).toEqual([]);
    expect(compareSums(first, again)).toEqual(['changed', 'missing', 'new']);
  });
});

describe.runIf(spawnSync('git', ['--version']).status === 0)('checkPublishable', () => {
  it('refuses changes that are not committed, and a tag of another version', () => {
    using dir = tempDir();
    run('git', ['-C', dir.path, 'init', '--quiet']);
    checkPublishable(dir.path, '0.1.0', { GITHUB_REF_NAME: 'v0.1.0' });
    checkPublishable(dir.path, '0.1.0', {});
    expect(() => checkPublishable(dir.path, '0.1.0', { GITHUB_REF_NAME: 'v0.2.0' })).toThrow(/v0\.2\.0.*0\.1\.0/);
    write(dir.path, 'package.json');
    expect(() => checkPublishable(dir.path, '0.1.0', {})).toThrow(/not committed: \?\? package\.json/);
  });
});
