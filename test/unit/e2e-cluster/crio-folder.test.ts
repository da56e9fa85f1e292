import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { describeCrio, locateCrio } from '../../../e2e/cluster/crio-folder.ts';
import { fetchClusterPrograms } from '../../../e2e/cluster/programs.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'crio-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

const addPrograms = (...names: string[]) => {
  for (const name of names) {
    writeFileSync(join(dir, name), `#!/bin/sh\necho '${name} version 1.2.3'\n`, { mode: 0o755 });
  }
};

describe('locateCrio', () => {
  it('names all programs that are missing', () => {
    addPrograms('conmon');
    expect(() => locateCrio(dir)).toThrow(`CRI-O is not run: ${dir} has no crio, no pinns, no crun or runc`);
  });

  it('takes crun, as CRI-O itself does, or runc where there is no crun', () => {
    addPrograms('crio', 'conmon', 'pinns', 'runc');
    expect(locateCrio(dir).ociRuntime).toBe(join(dir, 'runc'));
    addPrograms('crun');
    expect(locateCrio(dir)).toEqual({
      kind: 'crio',
      crio: join(dir, 'crio'),
      conmon: join(dir, 'conmon'),
      pinns: join(dir, 'pinns'),
      ociRuntime: join(dir, 'crun'),
    });
    expect(describeCrio(locateCrio(dir))).toBe('CRI-O 1.2.3 with crun 1.2.3');
  });
});

describe('fetchClusterPrograms', () => {
  it('refuses CRI-O without a folder before it fetches or builds anything', async () => {
    const log: string[] = [];
    const fetched = fetchClusterPrograms(dir, { kubernetes: '1.36', runtime: 'crio' }, (line) => log.push(line));
    await expect(fetched).rejects.toMatchObject({ code: 'no-crio', hint: expect.stringContaining('--crio DIR') });
    expect(log).toEqual([]);
  });
});
