import { chmodSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { writeWrapper } from '../../../scripts/packages/debian-programs.ts';
import { run } from '../../../scripts/packages/run.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

it('the wrapper of a program starts it with its libraries after a copy or a move of the cache', () => {
  using dir = tempDir();
  const [before, after] = [join(dir.path, 'before'), join(dir.path, 'the new place')];
  const program = join(before, 'bookworm/tool/bin/tool');
  mkdirSync(join(program, '..'), { recursive: true });
  writeFileSync(program, '#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n');
  chmodSync(program, 0o755);
  const libraries = ['a', 'b'].map((name) => join(before, 'bookworm', name, 'lib'));
  writeWrapper(join(before, 'bin/tool'), program, libraries);
  renameSync(before, after);
  const bin = join(after, 'bin');
  expect(run(join(bin, 'tool'), ['one', 'two'])).toBe(`${bin}/../bookworm/a/lib:${bin}/../bookworm/b/lib one two\n`);
});
