import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { repo } from './pages.ts';

const page = readFileSync(join(repo, 'docs/migration.md'), 'utf8');

/** Rows of all tables whose last column says which tests run them. */
const rows = page
  .split(/\n{2,}/)
  .filter((block) => /^\|.*\| run by \|$/m.test(block))
  .flatMap((block) =>
    block
      .split('\n')
      .filter((line) => line.startsWith('| '))
      .slice(1),
  );

it('docs/migration.md names the tests of each row, or says that there are none', () => {
  expect(rows.length).toBeGreaterThan(40);
  const namesOf = (row: string) =>
    [...(row.split('|').at(-2) ?? '').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
  const exists = (name: string) =>
    existsSync(join(repo, name.includes('/') ? name : `test/golden/convert/${name}.in.yaml`));
  const isRun = (row: string) => namesOf(row).length > 0 && namesOf(row).every(exists);
  expect(rows.filter((row) => !/\| not run \|$/.test(row) && !isRun(row))).toEqual([]);
});
