import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseSettings, repository, suiteCommand } from '../../../e2e/kind/settings.ts';

const page = readFileSync(join(repository, 'docs/kind.md'), 'utf8');
const bodies = ['kep-5304', 'dpdk', 'trouble'].map((name) =>
  readFileSync(join(repository, `e2e/cluster/cases/${name}.ts`), 'utf8'),
);

/** The arguments of `npm run e2e:kind` wherever the page has it, in blocks and within lines. */
const calls = [...page.matchAll(/npm run e2e:kind(?: --([^`\n]*))?/g)].map(([, text = '']) =>
  text
    .replaceAll(/<[^>]*>/g, 'x')
    .trim()
    .split(' ')
    .filter(Boolean),
);

describe('docs/kind.md', () => {
  it.each(calls.filter((words) => !words.includes('--help')))('has arguments that the suite takes: %s', (...words) => {
    const env = { KUBECONFIG: '/k', NETDRA_CACHE: '/c', PATH: '/nowhere', KIND_EXPERIMENTAL_PROVIDER: 'docker' };
    expect(parseSettings(words, env).testArguments).toEqual(words.includes('-t') ? ['-t', 'Cleanup'] : []);
  });

  it('has enough of them', () => expect(calls.length).toBeGreaterThan(8));

  it('names options that there are', () => {
    const known = suiteCommand().options.flatMap(({ long }) => long ?? []);
    const named = [...page.matchAll(/`(--[a-z-]+)`/g)].map(([, name = '']) => name);
    expect(named.length).toBeGreaterThan(2);
    for (const name of named) expect([...known, '--']).toContain(name);
  });

  it('has every case in its table', () => {
    const cases = bodies.flatMap((text) => [...text.matchAll(/^ +it\(/gm)]);
    expect(cases.length).toBe(11);
    const table = page.slice(page.indexOf('| case | what it shows |'), page.indexOf('Those with a capital letter'));
    // Behind two lines of its head.
    expect(table.trim().split('\n')).toHaveLength(cases.length + 2);
  });

  it('speaks of files that are there', () => {
    for (const [, target = ''] of page.matchAll(/\]\((?!http)([^)#]+)/g)) {
      expect(existsSync(join(repository, 'docs', target)), target).toBe(true);
    }
  });
});
