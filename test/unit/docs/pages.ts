import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const repo = fileURLToPath(new URL('../../../', import.meta.url));

/** A fenced block, or a piece of code within a line. */
export interface Snippet {
  page: string;
  line: number;
  /** What follows the fence: `yaml values`; `inline` for code within a line. */
  info: string;
  content: string;
}

/** Every page of the project, by its path from the top. */
export function listPages(): string[] {
  const isOurs = (path: string) => !/(^|\/)(node_modules|dist|\.(?!github\b)[^/]+)(\/|$)/.test(path);
  const walk = (dir: string): string[] =>
    readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
      const path = join(dir, entry.name);
      if (!isOurs(relative(repo, path))) return [];
      if (entry.isDirectory()) return walk(path);
      return entry.name.endsWith('.md') ? [relative(repo, path)] : [];
    });
  return walk(repo).sort();
}

export function readSnippets(page: string): Snippet[] {
  return parseSnippets(page, readFileSync(join(repo, page), 'utf8'));
}

/**
 * All code of a page, in its order.
 * @throws Error for a fence that is not closed, since everything after it would be taken for code
 */
export function parseSnippets(page: string, markdown: string): Snippet[] {
  const snippets: Snippet[] = [];
  let open: (Snippet & { fence: string; indent: number; lines: string[] }) | undefined;
  for (const [index, text] of markdown.split('\n').entries()) {
    const [, blanks = '', fence, info = ''] = /^(\s*(?:[-*] |\d+\. )?\s*)(`{3,}|~{3,})(.*)$/.exec(text) ?? [];
    if (open !== undefined) {
      const isEnd = fence !== undefined && info.trim() === '' && fence.startsWith(open.fence);
      if (!isEnd) {
        open.lines.push(text.slice(Math.min(open.indent, text.search(/\S|$/))));
        continue;
      }
      const { page, line, info: openInfo, lines } = open;
      snippets.push({ page, line, info: openInfo, content: lines.map((each) => `${each}\n`).join('') });
      open = undefined;
    } else if (fence !== undefined && !info.includes('`')) {
      open = { page, line: index + 1, info: info.trim(), content: '', fence, indent: blanks.length, lines: [] };
    } else {
      const spans = text.matchAll(/(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)/g);
      for (const [, , code = ''] of spans)
        snippets.push({ page, line: index + 1, info: 'inline', content: code.trim() });
    }
  }
  if (open !== undefined) throw new Error(`${page}:${open.line}: the block is not closed`);
  return snippets;
}
