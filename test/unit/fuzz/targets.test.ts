import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tempDir } from '../../doubles/temp-dir.ts';
import { busyVariable, scratchVariable } from '../../fuzz/scratch.ts';
import { checkInput, corpusFiles, inputsOf, loadTarget, targetNames } from '../../fuzz/target.ts';

const dir = tempDir();
beforeAll(() => {
  process.env[scratchVariable] = dir.path;
  process.env[busyVariable] = 'yes';
});
afterAll(() => {
  delete process.env[scratchVariable];
  delete process.env[busyVariable];
  dir[Symbol.dispose]();
});

/** `npm run fuzz` runs as many as there is time for. */
const numRuns = 30;

const names = targetNames();

describe.each(names)('fuzz target %s', async (name) => {
  const target = await loadTarget(name);

  it('has the name of its file', () => expect(target.name).toBe(name));

  it('accepts at least one of its seeds', async () => {
    const accepted: boolean[] = [];
    for (const seed of target.seeds()) accepted.push(await checkInput(target, seed));
    expect(accepted).toContain(true);
  });

  it.each(corpusFiles(name).map((url) => [url.pathname.split('/').at(-1), url]))(
    'survives %s of its corpus',
    async (_, url) => {
      await checkInput(target, readFileSync(url!));
    },
  );

  // Some targets write files, which takes its time on a busy machine.
  it('survives mutated and generated inputs', { timeout: 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(inputsOf(target), async (input) => void (await checkInput(target, input))),
      { numRuns },
    );
  });
});
