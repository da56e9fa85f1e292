import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, posix } from 'node:path';

/**
 * Links and pictures of built pages that lead to no file of the site, or to no heading of a page: `page: link`. Links to other
 * sites are not followed.
 * @param folder with the pages
 * @param base path that a server has the folder at, with slashes at both ends
 */
export function findDeadLinks(folder: string, base: string): string[] {
  const pages = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.html'));
  const texts = new Map(pages.map((page) => [page, readFileSync(join(folder, page), 'utf8')]));
  const anchors = new Map(
    [...texts].map(([page, text]) => [page, new Set([...text.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id))]),
  );
  const isDead = (page: string, link: string) => {
    const { pathname, hash } = new URL(link, `http://site${base}${page}`);
    if (!pathname.startsWith(base)) return true;
    const path = posix.join(
      decodeURIComponent(pathname.slice(base.length)),
      pathname.endsWith('/') ? 'index.html' : '',
    );
    if (!existsSync(join(folder, path)) || statSync(join(folder, path)).isDirectory()) return true;
    return hash !== '' && anchors.get(path)?.has(decodeURIComponent(hash.slice(1))) !== true;
  };
  return [...texts].flatMap(([page, text]) => {
    const links = new Set([...text.matchAll(/<[a-z]+\s[^>]*?\b(?:href|src)="([^"]*)"/g)].map(([, link = '']) => link));
    return [...links]
      .map((link) => link.replaceAll('&amp;', '&'))
      .filter((link) => !/^(?:[a-z]+:|\/\/)/i.test(link) && isDead(page, link))
      .map((link) => `${page}: ${link}`);
  });
}
