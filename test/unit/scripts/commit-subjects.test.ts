import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findSubjectProblem, listCheckedCommits } from '../../../scripts/commit-subjects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

describe('findSubjectProblem', () => {
  it.each([
    'vf: restore the host name when detaching from a lost sandbox',
    'kubeletplugin, nri: refuse frames over the limit',
    'README: name the first released version',
    `e2e: ${'a'.repeat(67)}`,
  ])('accepts "%s"', (subject) => expect(findSubjectProblem(subject)).toBeUndefined());

  it.each([
    [`e2e: ${'a'.repeat(68)}`, 'has 73 characters, 72 are allowed'],
    ['Read once more: one look for policy and devices', 'does not begin with an area and a colon'],
    ['Add a test', 'does not begin with an area and a colon'],
    ['fixup! vf: restore the name', 'does not begin with an area and a colon'],
    ['vf: Restore the name', 'has no verb in lower case'],
    ['vf: restore the name.', 'ends with a full stop'],
  ])('rejects "%s"', (subject, problem) => expect(findSubjectProblem(subject)).toContain(problem));
});

const hasGit = spawnSync('git', ['--version']).status === 0;

describe.runIf(hasGit)('listCheckedCommits', () => {
  /** Runs git in the folder, without settings of the user. */
  const git = (folder: string, ...args: string[]) => {
    const name = ['-c', 'user.name=a', '-c', 'user.email=a@localhost', '-c', 'commit.gpgsign=false'];
    const { status, stderr } = spawnSync('git', ['-C', folder, ...name, ...args], { encoding: 'utf8' });
    expect(stderr.includes('fatal') ? stderr : status).toBe(0);
  };
  const makeRepository = (folder: string) => {
    mkdirSync(join(folder, 'scripts'), { recursive: true });
    git(folder, 'init', '--quiet', '--initial-branch=main');
    git(folder, 'commit', '--quiet', '--allow-empty', '--message=Before the rule');
    writeFileSync(join(folder, 'scripts/commit-subjects.ts'), '');
    git(folder, 'add', '--all');
    git(folder, 'commit', '--quiet', '--message=scripts: check subjects');
    for (const subject of ['vf: one', 'vf: two'])
      git(folder, 'commit', '--quiet', '--allow-empty', `--message=${subject}`);
  };
  const subjectsIn = (folder: string) => {
    const commits = listCheckedCommits(folder);
    return typeof commits === 'string' ? commits : commits.map(({ subject }) => subject);
  };

  it('lists the commits after the commit that added the rule', () => {
    using dir = tempDir();
    makeRepository(dir.path);
    expect(subjectsIn(dir.path)).toEqual(['vf: two', 'vf: one']);
  });

  it('lists only commits that a shallow clone contains', () => {
    using dir = tempDir();
    makeRepository(join(dir.path, 'whole'));
    git(dir.path, 'clone', '--quiet', '--depth=2', `file://${dir.path}/whole`, 'shallow');
    expect(subjectsIn(join(dir.path, 'shallow'))).toEqual(['vf: two']);
  });

  it('lists no commits and says why when it is run outside a repository', () => {
    using dir = tempDir();
    expect(subjectsIn(dir.path)).toContain('not a git repository');
  });
});
