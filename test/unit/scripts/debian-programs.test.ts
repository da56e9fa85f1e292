import { chmodSync, copyFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ensureProgram, writeWrapper } from '../../../scripts/packages/debian-programs.ts';
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

it('a wrapper that an earlier version left in the cache is replaced', () => {
  using dir = tempDir();
  const program = join(dir.path, 'debian/bookworm/tmux/usr/bin/tmux');
  const wrapper = join(dir.path, 'debian/bin/tmux');
  for (const path of [program, wrapper]) mkdirSync(join(path, '..'), { recursive: true });
  copyFileSync('/bin/true', program);
  writeFileSync(wrapper, '#!/bin/sh\nexec /an/earlier/cache/tmux "$@"\n', { mode: 0o755 });
  const provide = () => ensureProgram('tmux', dir.path, { PATH: '' }, () => undefined);
  expect(provide()).toBe(join(wrapper, '..'));
  expect(run(wrapper, [])).toBe('');
  const text = readFileSync(wrapper, 'utf8');
  provide();
  expect(readFileSync(wrapper, 'utf8')).toBe(text);
});
