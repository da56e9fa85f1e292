import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CacheEntry, cacheEntryFolder, takeCacheEntries } from '../../scripts/packages/cache.ts';
import { run } from '../../scripts/packages/run.ts';

const version = '12.21.0';
/** What an author's project has besides netdra. */
const ofAuthors = { typescript: '*', '@types/node': '*' };
const manifest = fileURLToPath(new URL('../../package.json', import.meta.url));
const { dependencies } = JSON.parse(readFileSync(manifest, 'utf8')) as { dependencies: Record<string, string> };

/** pnpm, and a store with all that {@link addByPnpm} installs besides netdra. */
const entry: CacheEntry = {
  name: 'pnpm',
  inputs: { version, ofAuthors, dependencies },
  build: (dir) => {
    const npm = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--cache', join(dir, 'npm-cache')];
    run('npm', [...npm, '--prefix', dir, `pnpm@${version}`]);
    const app = join(dir, 'filler');
    mkdirSync(app);
    writeFileSync(join(app, 'package.json'), JSON.stringify({ dependencies: { ...dependencies, ...ofAuthors } }));
    runPnpm(dir, app, ['install', '--ignore-scripts']);
    for (const name of ['filler', 'npm-cache']) rmSync(join(dir, name), { recursive: true });
  },
};

const entriesDir = (cacheDir: string) => join(cacheDir, 'pnpm');

/** Downloads pnpm and the packages, before tests run without a network. @throws CommandError */
export function fetchPnpm(cacheDir: string): void {
  takeCacheEntries(entriesDir(cacheDir), [entry]).lock[Symbol.dispose]();
}

/** `pnpm add` of a package's file, as its authors run it, without a network. @throws CommandError */
export function addByPnpm(cacheDir: string, app: string, tarball: string): void {
  const folder = cacheEntryFolder(entriesDir(cacheDir), entry);
  runPnpm(folder, app, ['add', '--offline', tarball, ...Object.keys(ofAuthors)]);
}

/** With separate settings and caches: the user's are not used. */
function runPnpm(folder: string, cwd: string, args: string[]): void {
  const homes = Object.fromEntries(
    ['CACHE', 'CONFIG', 'DATA', 'STATE'].map((name) => [`XDG_${name}_HOME`, join(folder, 'home')]),
  );
  const store = ['--store-dir', join(folder, 'store')];
  run(join(folder, 'node_modules/.bin/pnpm'), [...args, ...store], { cwd, env: { ...process.env, ...homes } });
}
