import { globSync, mkdtempDisposableSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { repository } from '../../../scripts/run-command.ts';
import { kindCases, provide } from '../../../scripts/tests/rest-parts.ts';

const cases = globSync('e2e/{cluster,kind}/cases/**/*.ts', { cwd: repository })
  .map((path) => readFileSync(join(repository, path), 'utf8'))
  .join('\n');

it.each(kindCases)('the part kind selects an existing case by its title: %s', (title) => {
  expect(cases).toMatch(new RegExp(`(describe|it)\\('[^']*${title}`));
});

it('runs a script that provides programs once more if it fails', async () => {
  using dir = mkdtempDisposableSync(join(tmpdir(), 'netdra-'));
  const marker = join(dir.path, 'was-run');
  await provide(['bash', '-c', `test -e ${marker} || { touch ${marker}; exit 1; }`]);
  await expect(provide(['bash', '-c', 'echo no network; exit 1'])).rejects.toThrow('no network');
});
