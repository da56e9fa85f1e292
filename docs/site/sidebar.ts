import { posix } from 'node:path';
import { readPage, type Stage, sitePath, titleOf } from './stage.ts';

interface SidebarEntry {
  text: string;
  link?: string;
  collapsed?: boolean;
  items?: SidebarEntry[];
}

const linkTo = (path: string) => `/${path.replace(/(^|\/)index\.md$/, '$1').replace(/\.md(#|$)/, '.html$1')}`;

/** The menu of all pages: what docs/contents.md lists for each kind of reader, the reference, and the rest. */
export function buildSidebar(stage: Stage): SidebarEntry[] {
  const contents = 'docs/contents.md';
  const groups = [...readPage(contents).matchAll(/^\| ([\w ]+) \| (.*\]\(.*) \|$/gm)].map(
    ([, reader = '', links = '']) => ({
      text: `For ${reader}`,
      items: [...links.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g)].map(([, text = '', link = '']) => {
        const target = posix.join('docs', link);
        return {
          text: `${text.charAt(0).toUpperCase()}${text.slice(1)}`,
          link: target === 'docs/decisions' ? '/decisions/' : linkTo(sitePath(target)),
        };
      }),
    }),
  );
  if (groups.length < 4) throw new Error(`${contents}: the table has changed: docs/site/sidebar.ts reads it`);
  const listed = new Set(groups.flatMap(({ items }) => items.map(({ link }) => link.replace(/#.*/, ''))));
  const others = stage.pages
    .filter((page) => !['README.md', contents].includes(page) && !page.startsWith('docs/decisions/'))
    .filter((page) => !listed.has(linkTo(sitePath(page))));
  const entry = (page: string) => ({ text: titleOf(readPage(page)), link: linkTo(sitePath(page)) });
  return [
    ...groups,
    { text: 'API of the framework', link: '/api/' },
    { text: 'More', collapsed: true, items: others.map(entry) },
  ];
}
