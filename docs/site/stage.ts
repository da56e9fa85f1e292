import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { listPages, repo } from '../../test/unit/docs/pages.ts';
import { drawDiagram } from './diagram.ts';

/**
 * Where the site has a page of the repository: `docs/x.md` as `x.md`, a README as the `index.md` of its folder, and others of
 * the top and of `.github` in `project/`.
 */
export function sitePath(page: string): string {
  const path = page.replace(/^\.github\//, '').replace(/(^|\/)README\.md$/, '$1index.md');
  return path.includes('/') ? path.replace(/^docs\//, '') : path.replace(/^(?!index\.md)/, 'project/').toLowerCase();
}

/** The first heading of a page, without marks. */
export function titleOf(markdown: string): string {
  return (/^# (.*)$/m.exec(markdown)?.[1] ?? '').replaceAll('`', '');
}

export const readPage = (page: string) => readFileSync(join(repo, page), 'utf8');

/** Languages of highlighted code by the ending of a file's name; other files are shown as plain text. */
const languages: Record<string, string> = { ts: 'ts', py: 'python', go: 'go', sh: 'sh', yaml: 'yaml', json: 'json' };

/**
 * The pages of the repository in a folder for the generator. Their links lead to other pages of the site; for a file or
 * folder of the repository that no page is made of, a page shows it.
 */
export class Stage {
  /** From the root of the repository. */
  readonly pages = listPages().filter((page) => page !== '.github/PULL_REQUEST_TEMPLATE.md');
  readonly #folder: string;
  readonly #sources = new Set<string>();

  /** @param folder absolute, empty */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** @param path below the folder; its own folder is made */
  write(path: string, content: string): void {
    mkdirSync(join(this.#folder, dirname(path)), { recursive: true });
    writeFileSync(join(this.#folder, path), content);
  }

  /** All pages, and then the files and folders that they link to. */
  writePages(): void {
    for (const page of this.pages) this.write(sitePath(page), this.#convert(page, readPage(page)));
    const links = this.pages
      .filter((page) => page.startsWith('docs/decisions/'))
      .map((page) => `- [${titleOf(readPage(page))}](${posix.basename(page)})`);
    this.write('decisions/index.md', `# Decisions\n\nWhy things are as they are.\n\n${links.join('\n')}\n`);
    for (const path of this.#sources) this.#writeSource(path);
  }

  /**
   * Relative links of a text for another place.
   * @param from the page that has them, from the root of the repository
   * @param to the page of the site that shows them
   */
  moveLinks(text: string, from: string, to: string): string {
    return text.replaceAll(/\]\(([^)\s]+)\)/g, (whole, link: string) => {
      const [target = '', anchor] = link.split('#');
      if (/^[a-z]+:/.test(link) || (target === '' && sitePath(from) === to)) return whole;
      const path = target === '' ? from : posix.join(posix.dirname(from), target).replace(/\/$/, '');
      const relative = posix.relative(posix.dirname(to), this.#place(path));
      return `](./${relative}${anchor === undefined ? '' : `#${anchor}`})`;
    });
  }

  /** The page of the site for a page, picture, file or folder of the repository. */
  #place(path: string): string {
    if (this.pages.includes(path)) return sitePath(path);
    if (path.endsWith('.svg')) {
      mkdirSync(join(this.#folder, dirname(sitePath(path))), { recursive: true });
      copyFileSync(join(repo, path), join(this.#folder, sitePath(path)));
      return sitePath(path);
    }
    if (path === 'docs/decisions') return 'decisions/index.md';
    const isFolder = statSync(join(repo, path)).isDirectory();
    if (isFolder && this.pages.includes(`${path}/README.md`)) return sitePath(`${path}/README.md`);
    this.#sources.add(path);
    return isFolder ? `source/${path}/index.md` : `source/${path}.md`;
  }

  #convert(page: string, markdown: string): string {
    const to = sitePath(page);
    const parts = markdown.split(/(^[ \t]*```[\s\S]*?^[ \t]*```[ \t]*$)/m);
    return parts
      .map((part, index) => {
        if (index % 2 === 0) return this.moveLinks(part.replaceAll(/<!--[\s\S]*?-->/g, ''), page, to);
        const diagram = /^```mermaid\n([\s\S]*)\n```/.exec(part)?.[1];
        if (diagram === undefined) return part;
        const path = to.replace(/\.md$/, `-${index}.svg`);
        return `![Diagram; the text has its steps](${this.#picture(path, drawDiagram(diagram))})`;
      })
      .join('');
  }

  /** @returns its link from a page beside it */
  #picture(path: string, svg: string): string {
    this.write(path, svg);
    return `./${posix.basename(path)}`;
  }

  #writeSource(path: string): void {
    const head = `---\nsearch: false\noutline: false\n---\n# ${path}\n\nIn the repository.\n\n`;
    if (statSync(join(repo, path)).isDirectory()) {
      const to = `source/${path}/index.md`;
      const names = readdirSync(join(repo, path)).filter((name) => !/^(\.|node_modules$|dist$)/.test(name));
      const links = names.map((name) => `- [${name}](${name})`).join('\n');
      this.write(to, head + this.moveLinks(links, `${path}/x`, to));
      return;
    }
    const fence = '`'.repeat(8);
    const language = languages[posix.extname(path).slice(1)] ?? 'txt';
    this.write(`source/${path}.md`, `${head}${fence}${language}\n${readPage(path)}\n${fence}\n`);
  }
}
