import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { anchorOf } from './anchor.ts';
import { repo } from './pages.ts';

/** The anchors that GitHub gives the headings of a page. */
export function anchorsOf(markdown: string): string[] {
  const withoutCode = markdown.replaceAll(/^\s*```[\s\S]*?^\s*```/gm, '');
  return [...withoutCode.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => anchorOf(title));
}

/** Links of a page below `root` to files and headings that are not there. Links to other sites are not followed. */
export function findBrokenLinks(page: string, markdown: string, root = repo): string[] {
  const targets = [...markdown.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
  return targets.filter((target) => {
    if (/^[a-z]+:/.test(target)) return false;
    const [path = '', anchor] = target.split('#');
    const file = path === '' ? join(root, page) : join(root, dirname(page), path);
    if (relative(root, file).startsWith('..') || !existsSync(file)) return true;
    return anchor !== undefined && !anchorsOf(readFileSync(file, 'utf8')).includes(anchor);
  });
}
