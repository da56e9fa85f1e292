import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { problemOf } from '../../../scripts/tests/part.ts';
import { restStages } from '../../../scripts/tests/rest-parts.ts';
import { nodeTools } from '../../../scripts/tests/short-parts.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { addPrograms, fillCache } from './node-cache.ts';

/** Makes a machine without programs in PATH, whose cache is empty. @returns the cache */
function bareMachine(): string {
  const dir = tempDir();
  onTestFinished(() => dir[Symbol.dispose]());
  for (const [name, value] of Object.entries({ PATH: '', NETDRA_CACHE: dir.path, NETDRA_CONTAINERD_DIRS: '' }))
    vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  return dir.path;
}

describe('the requirements of a part', () => {
  it('include what fetches the programs of a node while the cache lacks one', () => {
    const cacheDir = bareMachine();
    expect(nodeTools.problem()).toBe('needs apt-get, dpkg-deb');
    fillCache(cacheDir);
    expect(nodeTools.problem()).toBeUndefined();
  });

  it('include what fetches musl while the machine has only gcc', () => {
    const cacheDir = bareMachine();
    fillCache(cacheDir);
    const binDir = join(cacheDir, 'bin');
    addPrograms(binDir, ['gcc']);
    vi.stubEnv('PATH', binDir);
    expect(nodeTools.problem()).toBe('needs apt-get, dpkg-deb');
    addPrograms(binDir, ['musl-gcc']);
    expect(nodeTools.problem()).toBeUndefined();
  });

  it('include what fetches Go, unless PATH has it', () => {
    const cacheDir = bareMachine();
    const neighbours = restStages.flat(2).find(({ name }) => name === 'neighbours')!;
    expect(problemOf(neighbours)).toBe('needs apt-get, dpkg-deb');
    addPrograms(cacheDir, ['go']);
    vi.stubEnv('PATH', cacheDir);
    expect(problemOf(neighbours)).toBeUndefined();
  });
});
