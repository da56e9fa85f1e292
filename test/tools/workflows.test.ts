import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { goProgramsFolder } from '../../e2e/go/build.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { run } from '../../scripts/packages/run.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const repo = fileURLToPath(new URL('../..', import.meta.url));
const actionlint = join(goProgramsFolder(cacheFolder(process.env), 'actionlint'), 'actionlint');
// It reports on stdout. Other linters of scripts run only if the machine happens to have them.
const lint = (files: string[]) =>
  run('sh', ['-c', '"$0" -oneline -shellcheck= -pyflakes= "$@" >&2', actionlint, ...files], { cwd: repo });

it('actionlint accepts the workflows', () => {
  using dir = tempDir();
  const wrong = join(dir.path, 'wrong.yml');
  writeFileSync(wrong, 'on: push\njobs: { a: { runs-on: ubuntu-latest, steps: [{ user: x }] } }\n');
  expect(() => lint([wrong])).toThrow(/unexpected key "user"|step must/);

  const workflows = readdirSync(join(repo, '.github/workflows')).map((name) => join('.github/workflows', name));
  expect(workflows.length).toBeGreaterThan(3);
  lint(workflows);
});
