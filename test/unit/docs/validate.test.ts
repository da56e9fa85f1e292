import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { validateFiles } from '../../../src/cli/validate.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { options } from '../cli/validated.ts';
import { listPages, readSnippets, repo } from './pages.ts';

/** They have the classes that a claim may take from the chart. */
const chartValues = join(repo, 'deploy/helm/netdra/values.yaml');
const examples = readdirSync(join(repo, 'examples')).filter((name) => name.endsWith('.yaml'));
const blocks = listPages().flatMap((page) =>
  readSnippets(page)
    .filter(({ info, content }) => info === 'yaml' && content.includes('resource.k8s.io/'))
    .map(({ line, content }) => ({ place: `${page}:${line}`, content })),
);

it.each([
  ...examples.map((name) => ({
    place: `examples/${name}`,
    content: readFileSync(join(repo, 'examples', name), 'utf8'),
  })),
  ...blocks,
])('netdra validate accepts the classes and claims of $place together', async ({ content }) => {
  using dir = tempDir();
  const file = join(dir.path, 'objects.yaml');
  writeFileSync(file, content);
  const { faults } = await validateFiles([chartValues, file], options);
  expect(faults.map(({ line, message }) => `${line}: ${message}`)).toEqual([]);
});
