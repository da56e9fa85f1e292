import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseSettings, repository } from '../../../e2e/kind/settings.ts';
import { runSuite } from '../../../e2e/kind/suite.ts';
import { explain } from '../../../src/lib/errors.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const env = { PATH: '/nowhere', KIND_EXPERIMENTAL_PROVIDER: 'podman' };

describe('npm run e2e:kind', () => {
  it('never uses the KUBECONFIG cluster without --existing', () => {
    const mine = { ...env, KUBECONFIG: '/mine' };
    const kubeconfig = join(repository, 'test-results/kind/netdra-e2e/kubeconfig');
    expect(parseSettings([], mine)).toMatchObject({ mode: 'kind', kubeconfig });
    const argv = ['--existing', '--no-install', '--consumer-image', 'c:1'];
    expect(parseSettings(argv, mine)).toMatchObject({ mode: 'existing', kubeconfig: '/mine' });
  });

  it.each([
    [['--existing'], /--kubeconfig, or KUBECONFIG/],
    [['--existing', '--kubeconfig', '/k'], /--driver-image/],
    [['--existing', '--kubeconfig', '/k', '--no-install'], /--consumer-image/],
    [['--existing', '--kubeconfig', '/k:/l'], /takes one kubeconfig/],
    [['--name', 'Not Good'], /lower-case/],
    [['--engine', 'lxc'], /docker, podman, own/],
    [['--workers', '1'], /three nodes/],
    [['--engine', 'own', '--keep'], /--keep needs docker or podman/],
    [['--engine', 'own', '--node-image', 'kindest/node:v1.36.1'], /--node-image needs docker or podman/],
  ])('rejects %s', (argv, message) => {
    expect(() => parseSettings(argv, env)).toThrow(message);
  });

  it.each([
    ['kind', ['docker', 'helm'], [], /^kind is not in PATH \(install .*https:\/\/kind\.sigs\.k8s\.io/],
    ['helm', ['docker', 'kind'], [], /^helm is not in PATH \(install it: https:\/\/helm\.sh/],
    [
      'the chosen engine',
      ['docker'],
      ['--engine', 'podman'],
      /^podman is not in PATH \(install it: https:\/\/podman\.io/,
    ],
  ])('says in one line where to get %s', async (_, programs, argv, message) => {
    using dir = tempDir();
    for (const name of programs) writeFileSync(join(dir.path, name), '#!/bin/sh\n', { mode: 0o755 });
    const here = { PATH: dir.path, NETDRA_CACHE: dir.path };
    const run = async () => await runSuite(parseSettings(argv, here), { env: here, print: () => undefined });
    const reason = await run().catch(explain);
    expect(reason).toMatch(message);
    expect(reason).not.toContain('\n');
  });

  it.each([
    ['docker', { docker: 0, podman: 0 }],
    ['podman', { docker: 1, podman: 0 }],
    ['own', { docker: 1 }],
    ['own', {}],
  ])('chooses the engine %s if docker and podman exit with %j (absent: not installed)', (engine, codes) => {
    using dir = tempDir();
    for (const [name, code] of Object.entries(codes)) {
      writeFileSync(join(dir.path, name), `#!/bin/sh\nexit ${code}\n`, { mode: 0o755 });
    }
    expect(parseSettings([], { PATH: dir.path, NETDRA_CACHE: dir.path })).toMatchObject({ engine });
  });

  it('accepts the arguments in docs/kind.md', () => {
    const page = readFileSync(join(repository, 'docs/kind.md'), 'utf8');
    const calls = [...page.matchAll(/npm run e2e:kind(?: --([^`\n]*))?/g)]
      .map(([, text = '']) =>
        text
          .replaceAll(/<[^>]*>/g, 'x')
          .split(' ')
          .filter(Boolean),
      )
      .filter((words) => !words.includes('--help'));
    expect(calls.length).toBeGreaterThan(5);
    for (const words of calls) {
      const { testArguments } = parseSettings(words, { ...env, KUBECONFIG: '/k' });
      expect(testArguments, words.join(' ')).toEqual(words.includes('-t') ? ['-t', 'Cleanup'] : []);
    }
  });
});
