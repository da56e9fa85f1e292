import { kinds } from './items.ts';
import { readPage, type Stage, sitePath, titleOf } from './stage.ts';

interface SidebarEntry {
  text: string;
  link?: string;
  collapsed?: boolean;
  items?: SidebarEntry[];
}

const linkTo = (path: string) => `/${path.replace(/(^|\/)index\.md$/, '$1').replace(/\.md(#|$)/, '.html$1')}`;

/** The menu of all pages: what the README lists for each kind of reader, the reference, and the rest. */
export function buildSidebar(stage: Stage): SidebarEntry[] {
  const [, table = ''] =
    /^## Where to read on\n([\s\S]*?)\n\n(?!\|)/m.exec(readPage('README.md').replace('\n\n|', '\n|')) ?? [];
  const groups = [...table.matchAll(/^\| ([\w ]+) \| (.*) \|$/gm)]
    .filter(([, , links = '']) => links.includes(']('))
    .map(([, reader = '', links = '']) => ({
      text: `For ${reader}`,
      items: [...links.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g)].map(([, text = '', target = '']) => ({
        text: `${text.charAt(0).toUpperCase()}${text.slice(1)}`,
        link: target === 'docs/decisions' ? '/decisions/' : linkTo(sitePath(target)),
      })),
    }));
  if (groups.length < 4)
    throw new Error('README.md: the table of "Where to read on" has changed: site/sidebar.ts reads it');
  const listed = new Set(groups.flatMap(({ items }) => items.map(({ link }) => link.replace(/#.*/, ''))));
  const others = stage.pages.filter(
    (page) => !page.startsWith('docs/decisions/') && !listed.has(linkTo(sitePath(page))) && page !== 'README.md',
  );
  const entry = (page: string) => ({ text: titleOf(readPage(page)), link: linkTo(sitePath(page)) });
  return [
    ...groups,
    {
      text: 'Reference',
      items: [
        ...Object.entries(kinds).map(([kind, text]) => ({ text, link: `/reference/${kind}/` })),
        { text: 'Schema of the metadata file', link: '/reference/metadata-schema.html' },
        { text: 'API of the framework', link: '/api/' },
      ],
    },
    { text: 'More', collapsed: true, items: others.map(entry) },
  ];
}
