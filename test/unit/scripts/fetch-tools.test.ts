import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { programsFolder } from '../../../programs/build.ts';
import { packageFolder } from '../../../scripts/packages/debian-packages.ts';
import { isProgram } from '../../../scripts/packages/host-programs.ts';
import { repository } from '../../../scripts/run-command.ts';
import { compiler } from '../../../scripts/tests/part.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { addPrograms, fillCache } from './node-cache.ts';

it.runIf(compiler.problem() === undefined)('the start gate is built into a cache whose path has a space', () => {
  using dir = tempDir();
  const cacheDir = join(dir.path, 'a cache');
  fillCache(cacheDir);
  mkdirSync(packageFolder(cacheDir, { name: 'musl-dev', suite: 'bookworm' }));
  const binDir = join(dir.path, 'bin');
  addPrograms(binDir, ['ip']);
  const env = { ...process.env, PATH: `${binDir}:${process.env.PATH}` };
  const args = [join(repository, 'e2e/node/fetch-tools.ts'), cacheDir];
  const output = execFileSync(process.execPath, args, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  expect(output).toBe(`export NETDRA_CACHE='${cacheDir}'\n`);
  expect(isProgram(join(programsFolder(cacheDir, 'static'), 'netdra-gate'))).toBe(true);
});
