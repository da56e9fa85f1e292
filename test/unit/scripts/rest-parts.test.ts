import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { repository } from '../../../scripts/run-command.ts';
import { kindCases } from '../../../scripts/tests/rest-parts.ts';

const cases = globSync('e2e/{cluster,kind}/cases/**/*.ts', { cwd: repository })
  .map((path) => readFileSync(join(repository, path), 'utf8'))
  .join('\n');

it.each(kindCases)('the part kind selects an existing case by its title: %s', (title) => {
  expect(cases).toMatch(new RegExp(`(describe|it)\\('[^']*${title}`));
});
