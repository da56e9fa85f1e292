import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { moveIntoPlace, removeStaleBuilds } from '../../../e2e/go/build.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

describe('removeStaleBuilds', () => {
  it('removes what builds have left that were killed, and nothing else', () => {
    using dir = tempDir();
    const { pid: deadPid } = spawnSync('true');
    const kept = [`build-${process.pid}-b2Xy`, 'helm-4-0123456789ab'];
    for (const name of [...kept, `build-${deadPid}-a1Zz`])
      mkdirSync(join(dir.path, name, 'programs'), { recursive: true });
    removeStaleBuilds(dir.path);
    expect(readdirSync(dir.path).sort()).toEqual(kept);
  });
});

describe('moveIntoPlace', () => {
  it('keeps what another run has built meanwhile', () => {
    using dir = tempDir();
    const target = join(dir.path, 'helm-4-0123456789ab');
    for (const name of ['first', 'second']) {
      const unfinished = join(dir.path, name);
      mkdirSync(unfinished);
      writeFileSync(join(unfinished, 'helm'), name);
      moveIntoPlace(unfinished, target);
    }
    expect(readFileSync(join(target, 'helm'), 'utf8')).toBe('first');
  });
});
