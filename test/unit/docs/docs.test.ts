import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadYaml } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { renderErrors, renderReference, renderWrongInputs } from '../../../scripts/reference.ts';
import { findCommandProblem } from './check-command.ts';
import { findDocumentProblems } from './check-document.ts';
import { executed, findSnippetProblems } from './check-snippet.ts';
import { findKindProblems } from './kinds.ts';
import { findBrokenLinks } from './links.ts';
import { findNameProblem, listMetrics } from './names.ts';
import { listPages, parseSnippets, readSnippets, repo } from './pages.ts';

/** What is wrong with a text as a page. */
const problemsOf = (markdown: string) => parseSnippets('page.md', markdown).flatMap(findSnippetProblems);
const block = (info: string, content: string) => `\`\`\`${info}\n${content}\n\`\`\`\n`;

// Flags may come from the environment, too.
beforeAll(() => void vi.stubEnv('NODE_NAME', undefined));
afterAll(() => void vi.unstubAllEnvs());

describe('every page', () => {
  const pages = listPages();

  it('is among the checked pages', () => {
    expect(pages).toEqual(
      expect.arrayContaining([
        'README.md',
        'CONTRIBUTING.md',
        'docs/operators.md',
        'docs/decisions/0004-reject-or-gate.md',
      ]),
    );
    expect(pages.filter((page) => page.includes('node_modules'))).toEqual([]);
  });

  it.each(pages)('%s has only code that a test runs or parses', (page) => {
    const problems = readSnippets(page).flatMap((snippet) =>
      findSnippetProblems(snippet).map((problem) => `${page}:${snippet.line}: ${problem}`),
    );
    expect(problems).toEqual([]);
  });

  it.each(pages)('%s links only to existing files and headings', (page) => {
    expect(findBrokenLinks(page, readFileSync(join(repo, page), 'utf8'))).toEqual([]);
  });

  it.each(pages)('%s names the chart in a registry as Chart.yaml does', (page) => {
    const { name } = loadYaml<{ name: string }>(readFileSync(join(repo, 'deploy/helm/netdra/Chart.yaml'), 'utf8'));
    const named = readFileSync(join(repo, page), 'utf8').matchAll(/oci:\/\/[\w.:-]+\/charts\/([\w-]+)/g);
    expect([...named].map(([, each]) => each).filter((each) => each !== name)).toEqual([]);
  });

  // Decisions name what there was.
  const current = pages.filter((page) => !page.startsWith('docs/decisions/'));
  it.each(current)('%s names only existing metrics, values and files', async (page) => {
    const metrics = await listMetrics();
    const problems = readSnippets(page)
      .filter(({ info }) => info === 'inline')
      .map(({ line, content }) => ({ line, problem: findNameProblem(content, metrics, page) }));
    expect(problems.filter(({ problem }) => problem !== undefined)).toEqual([]);
  });

  const guides = readdirSync(join(repo, 'docs')).filter((name) => name.endsWith('.md') && name !== 'contents.md');
  it.each(guides)('docs/%s says at the top what its readers can do after reading it', (name) => {
    const [page = '', contents = ''] = [name, 'contents.md'].map((each) =>
      readFileSync(join(repo, 'docs', each), 'utf8'),
    );
    expect(findKindProblems(name, page, contents)).toEqual([]);
  });

  it('has its code blocks found: all pages together contain more than 60', () => {
    const snippets = pages.flatMap(readSnippets).filter(({ info }) => info !== 'inline');
    expect(snippets.length).toBeGreaterThan(60);
    for (const { page, infos } of executed)
      for (const info of infos)
        expect(snippets.filter((each) => each.page === page && each.info === info)).not.toEqual([]);
  });
});

it('docs/dependencies.md has a row for each runtime package', () => {
  const { dependencies } = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8')) as { dependencies: object };
  const rows = readFileSync(join(repo, 'docs/dependencies.md'), 'utf8').matchAll(/^\| \[`([^`]+)`\]/gm);
  expect([...rows].map(([, name]) => name).sort()).toEqual(Object.keys(dependencies).sort());
});

it.each([
  ['docs/reference.md', 'the flags', renderReference],
  ['docs/errors.md', 'the error codes', renderErrors],
  ['test/golden/wrong-inputs.md', 'the answers to wrong input', renderWrongInputs],
])('the part of %s on %s is up to date with the code (npm run reference)', (page, _, render) => {
  expect(readFileSync(join(repo, page), 'utf8')).toBe(render());
});

it('workflows run only existing commands', () => {
  const folder = join(repo, '.github/workflows');
  const lines = readdirSync(folder).flatMap((name) =>
    [...readFileSync(join(folder, name), 'utf8').matchAll(/\brun: ((?:npm|bash) .*)$/gm)].map(([, line = '']) => line),
  );
  expect(lines.length).toBeGreaterThan(4);
  expect(lines.filter((line) => findCommandProblem(line) !== undefined)).toEqual([]);
});

it('page paths in code and configuration lead to existing pages and headings', () => {
  const folders = ['src', 'nri', 'deploy', 'examples', 'e2e', 'scripts', 'programs'];
  const args = ['-rIoE', '--exclude-dir=node_modules', 'docs/[A-Za-z0-9/_-]+\\.md(#[a-z0-9-]+)?', ...folders];
  const found = spawnSync('grep', args, { cwd: repo, encoding: 'utf8' }).stdout.trim().split('\n');
  expect(found.length).toBeGreaterThan(20);
  const links = found.map((line) => line.replace(/^([^:]*):(.*)$/, '[$1]($2)'));
  expect(findBrokenLinks('README.md', links.join('\n'))).toEqual([]);
});

describe('findSnippetProblems', () => {
  const claim = (parameters: string) => `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: { name: a }
spec:
  devices:
    requests: [{ name: vf, exactly: { deviceClassName: netdra-kernel } }]
    config:
      - opaque:
          driver: sriov.netdra.dev
          parameters: ${parameters}`;
  const config = '{ apiVersion: netdra.dev/v1alpha1, kind: VFConfig, mtu: 1400 }';

  it.each([
    ['a block without language', '```\nls\n```', /no check for blocks of no kind/],
    ['a new command', block('sh', 'frobnicate --now'), /frobnicate --now: no check covers frobnicate/],
    ['a new command within a line', 'say `kubectl frobnicate x`', /no check covers kubectl frobnicate x/],
    ['a command that no shell accepts', block('sh', "echo 'a"), /the shell does not understand it/],
    ['invalid YAML', block('yaml', 'a: ['), /./],
    ['invalid JSON', block('json', '{ a: 1 }'), /JSON/],
    ['an unknown kind', block('yaml', 'apiVersion: v1\nkind: Frobnicator'), /no check for objects of v1 Frobnicator/],
    ['an unknown field', block('yaml', claim(config).replace('requests:', 'request:')), /no such field/],
    ['a wrong VFConfig', block('yaml', claim(config.replace('1400', '1'))), /mtu: /],
    ['a VFConfig that contradicts itself', block('yaml', claim(config.replace('mtu: 1400', 'cni: {}'))), /attach/],
    ['a wrong value', block('yaml values', 'kubeletPlugin: { logLevel: loud }'), /kubeletPlugin\.logLevel: /],
    ['a chart value that does not exist', block('yaml values', 'frob: 1'), /frob/],
    ['wrong TOML', block('toml', 'disable: false'), /no TOML/],
    ['wrong TypeScript', block('ts', 'const a: = 1'), /./],
    [
      'an unknown participant in a diagram',
      block('mermaid', 'sequenceDiagram\n  participant a\n  a->>b: x'),
      /no participant is called b/,
    ],
    ['a semicolon in a diagram', block('mermaid', 'sequenceDiagram\n  participant a\n  a->>a: x; y'), /a semicolon/],
    ['a diagram of another kind', block('mermaid', 'graph TD'), /only sequence diagrams/],
  ])('finds %s', (_, text, problem) => expect(problemsOf(text).join('\n')).toMatch(problem));
});

describe('findKindProblems', () => {
  const contents = '| operators | **How-to:** [a](a.md) **Reference:** [b](b.md) |\n';
  const page = (head: string) => `# A\n\n${head}\n`;
  const promise = 'With this page you can install the driver on a node.';

  it('accepts a page that the contents list by kind and reader', () => {
    expect(findKindProblems('a.md', page(`*How-to for operators.* ${promise}`), contents)).toEqual([]);
  });

  it.each([
    ['no head', promise],
    ['an unknown kind', `*Diary for operators.* ${promise}`],
    ['no promise', '*How-to for operators.* netdra is a driver for SR-IOV network cards.'],
    ['the wrong kind', `*Reference for operators.* ${promise}`],
    ['an unlisted reader', `*How-to for operators and authors.* ${promise}`],
  ])('finds a page with %s', (_, text) => expect(findKindProblems('a.md', page(text), contents)).toHaveLength(1));
});

describe('findNameProblem', () => {
  it.each(['netdra_devices', 'kubeletPlugin.logLevel', 'http.tls.secretName', 'spec.driver', 'netdra_x_sum{a="b"}'])(
    'accepts %s',
    (code) => expect(findNameProblem(code, ['netdra_devices', 'netdra_x'])).toBeUndefined(),
  );

  it.each(['netdra_device', 'kubeletPlugin.logLevels', 'http.tls.secret', 'cni.enable=true', 'src/none.ts'])(
    'rejects %s',
    (code) => expect(findNameProblem(code, ['netdra_devices'])).toContain('no'),
  );
});

it('findDocumentProblems checks the values of the chart in objects of Argo CD and Flux', () => {
  const values = { kubeletPlugin: { logLevels: 'debug' } };
  const release = { apiVersion: 'helm.toolkit.fluxcd.io/v2', kind: 'HelmRelease', spec: { values } };
  const source = { helm: { valuesObject: values } };
  const application = { apiVersion: 'argoproj.io/v1alpha1', kind: 'Application', spec: { source } };
  for (const object of [release, application]) {
    expect(findDocumentProblems('json', JSON.stringify(object))).toEqual([expect.stringContaining('logLevels')]);
  }
});

it.each([
  ['npm run frobnicate', 'package.json has no script frobnicate'],
  ['npm run e2e:vm dpdk', 'arguments of a script come after --'],
  ['netdra run --simulate 8', "error: required option '--node-name <name>' not specified"],
  ['netdra doctor --frobnicate', "error: unknown option '--frobnicate'"],
  ['netdra run --node-name n --simulate x', 'such as 8 or 2x4'],
  ['netdra walk', "error: unknown command 'walk'"],
  ['npx netdra claims -o xml', 'Allowed choices are table, json'],
  ['kubectl netdra claims --everywhere', "unknown option '--everywhere'"],
  ['node scripts/none.ts', 'scripts/none.ts is not there'],
  ['bash scripts/bootstrap.sh frobnicate it', 'no check covers frobnicate it'],
  ['kubectl get pods --frobnicate', 'kubectl get has no option --frobnicate'],
  ['kubectl apply --filename deploy/none.yaml', 'deploy/none.yaml is not there'],
  ['kubectl logs --namespace netdra daemonset/netdra', 'takes any ready pod of daemonset/netdra'],
  ['kubectl rollout undo', 'no check covers kubectl rollout undo'],
  ['helm install netdra deploy/helm/netdra --set image.tagg=1', 'the chart has no value image.tagg'],
  ['helm install netdra deploy/helm/netdra --set kubeletPlugin.logLevel=loud', 'the chart does not take'],
])('findCommandProblem reports the problem of %s', (line, problem) =>
  expect(findCommandProblem(line)).toContain(problem),
);
