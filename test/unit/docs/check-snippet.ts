import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { findCommandProblem, programs } from './check-command.ts';
import { findDocumentProblems } from './check-document.ts';
import { repo, type Snippet } from './pages.ts';

/** Blocks that a test of their page runs, or compares with what is real: nothing is to be looked at here. */
export const executed: { page: string; infos: string[]; test: string }[] = [
  {
    page: 'docs/cnf-developers.md',
    infos: ['console', 'sh', 'yaml'],
    test: 'test/integration/programs/docs.test.ts',
  },
  { page: 'README.md', infos: ['json'], test: 'test/unit/docs/readme.test.ts' },
  { page: 'docs/metadata.md', infos: ['json'], test: 'test/unit/framework/metadata/docs.test.ts' },
  {
    page: 'docs/troubleshooting.md',
    infos: ['sh leaked-sandboxes'],
    test: 'e2e/node/leaked-sandboxes.ts',
  },
  { page: 'docs/troubleshooting.md', infos: ['sh rebind'], test: 'e2e/vm/cases/restored-vf.test.ts' },
];

/** What is wrong with a piece of code on a page. An unknown kind of block is wrong, too. */
export function findSnippetProblems({ page, info, content }: Snippet): string[] {
  const byTest = executed.find((each) => each.page === page && each.infos.includes(info));
  if (byTest !== undefined) return findCoverageProblems(page, byTest.test);
  switch (info) {
    case 'inline':
    case 'sh':
      return findCommandProblems(commandsOf({ info, content }), info === 'inline');
    case 'yaml':
    case 'yaml values':
    case 'json':
      return findDocumentProblems(info, content);
    case 'ts':
      return findProblem(() => stripTypeScriptTypes(content));
    case 'toml':
      return findTomlProblems(content);
    case 'mermaid':
      return findDiagramProblems(content);
    // What programs print.
    case 'text':
      return [];
    default:
      return [`no check for blocks of ${info || 'no kind'}: see test/unit/docs/check-snippet.ts`];
  }
}

function findCoverageProblems(page: string, test: string): string[] {
  return readFileSync(join(repo, test), 'utf8').includes(page) ? [] : [`${test} does not look at ${page}`];
}

/** The commands of a `sh` block, one for each line, or the one that code within a line is. */
export function commandsOf({ info, content }: Pick<Snippet, 'info' | 'content'>): string[] {
  if (info === 'inline') return isCommand(content) ? [content] : [];
  return info === 'sh' ? commandLines(content) : [];
}

/** Whether code within a line is a command: a known program and at least one word more. */
function isCommand(code: string): boolean {
  const [program = '', ...rest] = code.split(' ');
  return rest.length > 0 && programs.includes(program);
}

/** Lines of a script without comments, those that go on put together. */
function commandLines(script: string): string[] {
  return script
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n')
    .filter((line) => line.trim() !== '' && !line.trim().startsWith('#'));
}

function findCommandProblems(lines: string[], isMention: boolean): string[] {
  return lines.flatMap((line) => {
    const problem = findCommandProblem(line, { isMention });
    return problem === undefined ? [] : [`${line}: ${problem}`];
  });
}

function findProblem(task: () => unknown): string[] {
  try {
    task();
    return [];
  } catch (error) {
    return [String(error)];
  }
}

/** The part of TOML that pages need: sections, and keys with a text, a number, true or false, or a list of texts. */
function findTomlProblems(content: string): string[] {
  const text = '"[^"]*"';
  const patterns = [
    /^\s*(#.*)?$/,
    new RegExp(`^\\s*\\[([\\w-]+|${text})(\\.([\\w-]+|${text}))*\\]$`),
    new RegExp(`^\\s*[\\w-]+ = (${text}|\\d+|true|false|\\[(${text}(, ${text})*)?\\])$`),
  ];
  const lines = content.split('\n');
  return lines.filter((line) => !patterns.some((pattern) => pattern.test(line))).map((line) => `${line}: no TOML`);
}

/** Sequence diagrams: every line is of a known form, and participants are declared first. */
function findDiagramProblems(content: string): string[] {
  const [head, ...lines] = content.split('\n').filter((line) => line.trim() !== '');
  if (head !== 'sequenceDiagram') return [`${head}: only sequence diagrams are looked at`];
  const known = new Set<string>();
  return lines.flatMap((line) => {
    // Mermaid takes it for the end of a statement.
    if (line.includes(';')) return [`${line.trim()}: a semicolon ends the line`];
    const [, declared] = /^\s*(?:participant|actor) (\w+)(?: as .+)?$/.exec(line) ?? [];
    if (declared !== undefined) {
      known.add(declared);
      return [];
    }
    const [, from, to] = /^\s*(\w+)-?->>(\w+): \S.*$/.exec(line) ?? [];
    const [, over] = /^\s*Note (?:over|left of|right of) (\w+(?:,\s*\w+)?): \S.*$/.exec(line) ?? [];
    const names = [from, to, ...(over?.split(/,\s*/) ?? [])].filter((name) => name !== undefined);
    if (names.length === 0) return [`${line.trim()}: no line of a sequence diagram`];
    return names.filter((name) => !known.has(name)).map((name) => `${line.trim()}: no participant is called ${name}`);
  });
}
