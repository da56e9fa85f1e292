import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fetchConsumerTools, locateReaderTool } from '../../consumer/reader-tools.ts';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../../e2e/node/packages/debian-packages.ts';
import { findFolderWith, isProgram, pathFolders } from '../../e2e/node/packages/host-programs.ts';
import { run } from '../../e2e/node/packages/run.ts';
import { type CacheEntry, cacheEntryFolder, takeCacheEntries } from '../../e2e/vm/cache.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../e2e/vm/packages/package-root.ts';
import { NetdraError } from '../../src/errors.ts';

const sourcePath = fileURLToPath(new URL('main.go', import.meta.url));
/** Helm's template functions are those of sprig; its toYaml is that of sigs.k8s.io/yaml. Source of libraries only. */
const libraries: PackageSet = {
  suite: 'bookworm',
  packages: ['golang-github-masterminds-sprig-dev', 'golang-k8s-sigs-yaml-dev'],
  // Only the libraries' own tests need it.
  without: ['golang-github-stretchr-testify-dev'],
};

const prometheus: DebianPackage = { name: 'prometheus', suite: 'bookworm' };

function rendererEntry(cacheDir: string, env: NodeJS.ProcessEnv, log: (line: string) => void): CacheEntry {
  return {
    name: 'renderer',
    inputs: { libraries, source: readFileSync(sourcePath, 'utf8') },
    build: (dir) => {
      fetchConsumerTools(cacheDir, env, log);
      log(`fetching Debian packages: ${libraries.packages.join(', ')} (${libraries.suite})`);
      unpackPackageSet(dir, libraries, '/etc/apt');
      const goPath = join(dir, packageSetFiles.root, 'usr/share/gocode');
      const sourceDir = join(goPath, 'src/renderer');
      mkdirSync(sourceDir);
      writeFileSync(join(sourceDir, 'main.go'), readFileSync(sourcePath));
      log('building the renderer of the chart');
      const goEnv = { GOPATH: goPath, GO111MODULE: 'off', CGO_ENABLED: '0', GOCACHE: join(dir, 'go-cache') };
      const go = locateReaderTool('go', cacheDir, env);
      run(go, ['build', '-o', join(dir, 'render'), 'renderer'], { env: { ...env, ...goEnv }, timeoutMs: 900_000 });
      // Only for this build: it takes more room than all else.
      rmSync(goEnv.GOCACHE, { recursive: true });
    },
  };
}

/**
 * Makes sure of the program that renders the chart, which is built from `main.go` once, and of promtool.
 * @throws PackageError, ToolchainError
 */
export function fetchChartTools(cacheDir: string, env: NodeJS.ProcessEnv, log: (line: string) => void): void {
  if (findFolderWith(pathFolders(env.PATH), ['promtool']) === undefined)
    fetchDebianPackages(cacheDir, [prometheus], log);
  takeCacheEntries(join(cacheDir, 'chart'), [rendererEntry(cacheDir, env, log)]).lock[Symbol.dispose]();
}

/** @throws NetdraError `tool-missing` */
export function locateRenderer(cacheDir: string, env: NodeJS.ProcessEnv): string {
  const entry = rendererEntry(cacheDir, env, () => undefined);
  return known(join(cacheEntryFolder(join(cacheDir, 'chart'), entry), 'render'));
}

/** Of the machine, or of Debian's package. @throws NetdraError `tool-missing` */
export function locatePromtool(cacheDir: string, env: NodeJS.ProcessEnv): string {
  const folder =
    findFolderWith(pathFolders(env.PATH), ['promtool']) ?? join(packageFolder(cacheDir, prometheus), 'usr/bin');
  return known(join(folder, 'promtool'));
}

function known(path: string): string {
  if (isProgram(path)) return path;
  throw new NetdraError('tool-missing', `no ${path}`, { hint: 'run `node scripts/fetch-chart-tools.ts` first' });
}
