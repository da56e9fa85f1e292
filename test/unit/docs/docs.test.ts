import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { findCommandProblem } from './check-command.ts';
import { executed, findSnippetProblems } from './check-snippet.ts';
import { findBrokenLinks } from './links.ts';
import { listPages, parseSnippets, readSnippets, repo } from './pages.ts';

/** What is wrong with a text as a page. */
const problemsOf = (markdown: string) => parseSnippets('page.md', markdown).flatMap(findSnippetProblems);
const block = (info: string, content: string) => `\`\`\`${info}\n${content}\n\`\`\`\n`;

// Flags may come from the environment, too.
beforeAll(() => void vi.stubEnv('NODE_NAME', undefined));
afterAll(() => void vi.unstubAllEnvs());

describe('every page', () => {
  const pages = listPages();

  it('is found', () => {
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

  it.each(pages)('%s has only code that is run or parsed by a test', (page) => {
    const problems = readSnippets(page).flatMap((snippet) =>
      findSnippetProblems(snippet).map((problem) => `${page}:${snippet.line}: ${problem}`),
    );
    expect(problems).toEqual([]);
  });

  it.each(pages)('%s links to files and headings that are there', (page) => {
    expect(findBrokenLinks(page, readFileSync(join(repo, page), 'utf8'))).toEqual([]);
  });

  it('has code at all', () => {
    const snippets = pages.flatMap(readSnippets).filter(({ info }) => info !== 'inline');
    expect(snippets.length).toBeGreaterThan(60);
    for (const { page, infos } of executed)
      for (const info of infos)
        expect(snippets.filter((each) => each.page === page && each.info === info)).not.toEqual([]);
  });
});

describe('parseSnippets', () => {
  it('finds blocks wherever they stand, and code within lines', () => {
    const text = `${block('sh', 'a\n\n  b')}1. say \`npm test\` or \`\`a \`b\` c\`\`\n   ~~~yaml values\n   x: 1\n     y\n   ~~~\n`;
    expect(parseSnippets('p', text).map(({ line, info, content }) => [line, info, content])).toEqual([
      [1, 'sh', 'a\n\n  b\n'],
      [6, 'inline', 'npm test'],
      [6, 'inline', 'a `b` c'],
      [7, 'yaml values', 'x: 1\n  y\n'],
    ]);
    // A fence with more marks ends with as many.
    expect(parseSnippets('p', '````text\n```\n````\n')).toMatchObject([{ info: 'text', content: '```\n' }]);
  });

  it('refuses a block that does not end', () => {
    expect(() => parseSnippets('p.md', 'x\n```sh\nls\n')).toThrow('p.md:2: the block is not closed');
  });
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
    ['a command', block('sh', 'npm run check')],
    ['a comment', block('sh', '# as root\nnpm test -- -t x   # all')],
    ['a claim', block('yaml', claim(config))],
    ['a value', block('yaml values', 'kubeletPlugin: { logLevel: debug }')],
    ['TOML', block('toml', '[plugins."io.containerd.nri.v1.nri"]\n  disable = false')],
    ['TypeScript', block('ts', 'await using a: Disposable = b();')],
    ['a diagram', block('mermaid', 'sequenceDiagram\n  participant a as A b\n  a->>a: does it\n  Note over a: done')],
    ['code that is no command', 'a `name: value`, `netdra`, and a ` alone'],
  ])('takes %s', (_, text) => expect(problemsOf(text)).toEqual([]));

  it.each([
    ['a block of no kind', '```\nls\n```', /no check for blocks of no kind/],
    ['a block of a new kind', block('ruby', 'puts 1'), /no check for blocks of ruby/],
    ['a new command', block('sh', 'frobnicate --now'), /frobnicate --now: no check covers frobnicate/],
    ['a new command after others', block('sh', 'npm test && frobnicate now'), /no check covers frobnicate now/],
    ['a new command within a line', 'say `kubectl frobnicate x`', /no check covers kubectl frobnicate x/],
    ['what no shell takes', block('sh', "echo 'a"), /the shell does not understand it/],
    ['YAML that is none', block('yaml', 'a: ['), /./],
    ['an empty block', block('yaml', '# nothing'), /./],
    ['JSON that is none', block('json', '{ a: 1 }'), /JSON/],
    ['a new kind', block('yaml', 'apiVersion: v1\nkind: Frobnicator'), /no check for objects of v1 Frobnicator/],
    ['a field that is not there', block('yaml', claim(config).replace('requests:', 'request:')), /no such field/],
    ['a wrong VFConfig', block('yaml', claim(config.replace('1400', '1'))), /mtu: /],
    ['a VFConfig against itself', block('yaml', claim(config.replace('mtu: 1400', 'cni: {}'))), /attach/],
    ['a wrong value', block('yaml values', 'kubeletPlugin: { logLevel: loud }'), /kubeletPlugin\.logLevel: /],
    ['a value that is not there', block('yaml values', 'frob: 1'), /frob/],
    ['wrong TOML', block('toml', 'disable: false'), /no TOML/],
    ['wrong TypeScript', block('ts', 'const a: = 1'), /./],
    [
      'a stranger in a diagram',
      block('mermaid', 'sequenceDiagram\n  participant a\n  a->>b: x'),
      /no participant is called b/,
    ],
    ['a semicolon in a diagram', block('mermaid', 'sequenceDiagram\n  participant a\n  a->>a: x; y'), /a semicolon/],
    ['another diagram', block('mermaid', 'graph TD'), /only sequence diagrams/],
  ])('sees %s', (_, text, problem) => expect(problemsOf(text).join('\n')).toMatch(problem));
});

describe('findCommandProblem', () => {
  it.each([
    'npm run e2e:vm -- dpdk',
    'netdra run --node-name=$NODE_NAME --simulate 8',
    'netdra metadata <namespace>/<claim>',
    'npx netdra doctor -o json',
    'node src/main.ts inventory',
    'bash scripts/bootstrap.sh --root bash scripts/in-node.sh COMMAND',
    'kubectl -n kube-system get pods --output wide',
    'helm upgrade netdra deploy/helm/netdra --reuse-values --set image.tag=0.1.1',
    'KUBECONFIG=x netdra claims | kubectl apply --filename -',
  ])('takes %s', (line) => expect(findCommandProblem(line)).toBeUndefined());

  it.each([
    ['npm run frobnicate', 'package.json has no script frobnicate'],
    ['npm run e2e:vm dpdk', 'arguments of a script come after --'],
    ['netdra run --simulate 8', "error: required option '--node-name <name>' not specified"],
    ['netdra doctor --frobnicate', "error: unknown option '--frobnicate'"],
    ['netdra run --node-name n --simulate x', 'such as 8 or 2x4'],
    ['netdra walk', "error: unknown command 'walk'"],
    ['npx netdra claims -o xml', 'Allowed choices are table, json'],
    ['node scripts/none.ts', 'scripts/none.ts is not there'],
    ['bash scripts/bootstrap.sh frobnicate it', 'no check covers frobnicate it'],
    ['kubectl get pods --frobnicate', 'kubectl get has no option --frobnicate'],
    ['kubectl apply --filename deploy/none.yaml', 'deploy/none.yaml is not there'],
    ['helm install netdra deploy/helm/netdra --set image.tagg=1', 'the chart has no value image.tagg'],
    ['helm install netdra deploy/helm/netdra --set kubeletPlugin.logLevel=loud', 'the chart does not take'],
  ])('sees what is wrong with %s', (line, problem) => expect(findCommandProblem(line)).toContain(problem));
});

describe('findBrokenLinks', () => {
  it('finds links to files and to headings that are not there', () => {
    const text =
      '# Here\n[a](none.md) [b](../LICENSE) [c](#here) [d](#there) [e](operators.md#install) [f](operators.md#none) [g](https://example.com)';
    expect(findBrokenLinks('docs/upgrade.md', text.replace('#here', '#in-short'))).toEqual([
      ...['none.md', '#there', 'operators.md#none'],
    ]);
  });
});
