/**
 * `npm run site`: builds the site from the pages of the repository and from the code. Arguments: `--version NAME`, a folder below
 * `--out DIR`, and `--base /PATH/`, at which the web server serves DIR. Defaults: `main` in `docs/site/dist/site`, at `/`.
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { runCommand } from '../../scripts/run-command.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { buildSidebar } from './sidebar.ts';
import { Stage, sitePath } from './stage.ts';

const site = import.meta.dirname;

export interface SiteOptions {
  /** Name of the version, a folder of `out`. */
  version: string;
  /** The folder that holds the versions, absolute. */
  out: string;
  /** Path of `out` on its server, with slashes at both ends. */
  base: string;
}

/**
 * Builds one version of the site. Other versions stay in `out`; the list of versions has all of them.
 * @throws NetdraError `site-failed` with what the generator says, for a dead link, too
 */
export async function buildSite({ version, out, base }: SiteOptions): Promise<void> {
  if (!/^[\w.-]+$/.test(version))
    throw new NetdraError('site-failed', `version ${version} cannot be the name of a folder`);
  const pages = join(site, 'dist/pages');
  rmSync(pages, { recursive: true, force: true });
  const stage = new Stage(pages);
  stage.writePages();
  writeForwards(stage);
  writeFileSync(join(site, 'dist/site.json'), JSON.stringify({ sidebar: buildSidebar(stage) }));
  await generate('typedoc', [
    '--options',
    'docs/site/typedoc.json',
    '--out',
    join(pages, 'api'),
    '--tsconfig',
    'scripts/tsconfig.library.json',
  ]);
  const target = join(out, version);
  rmSync(target, { recursive: true, force: true });
  // In the folder with its packages: elsewhere it adds one of them to the packages that it finds there.
  await generate('vitepress', ['build', '.', '--outDir', resolve(target), '--base', `${base}${version}/`], site);
  writeVersions(out);
}

async function generate(program: string, args: string[], folder = '.'): Promise<void> {
  const command = ['env', `--chdir=${folder}`, join(site, 'node_modules/.bin', program), ...args];
  const { output, succeeded } = await runCommand(command);
  if (succeeded) return;
  console.error(output);
  throw new NetdraError('site-failed', `${program} failed, see above`);
}

/**
 * Pages of docs/ are also found by their path in the repository, which the code and the alerts name:
 * `docs/troubleshooting.md#netdradown`.
 */
function writeForwards(stage: Stage): void {
  for (const page of stage.pages.filter((each) => each.startsWith('docs/'))) {
    const up = '../'.repeat(page.split('/').length);
    const target = `${up}${sitePath(page).replace(/\.md$/, '.html')}`;
    stage.write(`public/${page}/index.html`, forward(target));
  }
}

/** A page that leads to another one, also to a heading of it. */
const forward = (target: string) => `<!doctype html>
<html lang="en">
<title>netdra</title>
<meta http-equiv="refresh" content="1; url=${target}">
<script>location.replace(${JSON.stringify(target)} + location.hash)</script>
<a href="${target}">netdra</a>
</html>
`;

/** The list that the menu of versions shows, `main` first, then the newest release; and the start page, which leads to that release. */
export function writeVersions(out: string): void {
  const found = readdirSync(out).filter((name) => existsSync(join(out, name, 'index.html')));
  const order = (name: string) => (name === 'main' ? 0 : 1);
  const byAge = new Intl.Collator('en', { numeric: true });
  const versions = found.sort((left, right) => order(left) - order(right) || byAge.compare(right, left));
  writeFileSync(join(out, 'versions.json'), `${JSON.stringify(versions)}\n`);
  writeFileSync(join(out, 'index.html'), forward(`${versions.find((name) => name !== 'main') ?? 'main'}/index.html`));
}

if (process.argv[1] === import.meta.filename) {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({ options: { version: text, out: text, base: text } });
  const { version = 'main', base = '/' } = values;
  const out = resolve(values.out ?? join(site, 'dist/site'));
  try {
    await buildSite({ version, out, base });
    console.log(`${join(out, version)}: ${readFileSync(join(out, 'versions.json'), 'utf8').trim()}`);
  } catch (error) {
    if (!(error instanceof NetdraError)) throw error;
    console.error(`netdra: ${explain(error)}`);
    process.exitCode = 1;
  }
}
