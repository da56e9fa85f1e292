import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isUnused, markUsed, moveIntoPlace } from '../../scripts/packages/cache.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { findGo, type GoToolchain } from './toolchain.ts';

/** A build of Go programs failed. */
export class GoBuildError extends NetdraError {}

type Log = (line: string) => void;

const progressMs = 15_000;

/** The folder of one of our modules below `e2e/go`. */
export function goModuleFolder(module: string): string {
  return fileURLToPath(new URL(module, import.meta.url));
}

/**
 * Builds the programs of a module in `e2e/go`, unless the cache has them: those that its `tools.go` imports or, without
 * that file, the module's own. The folder in the cache is named by a hash of the module's files, so that a new version
 * is built beside the old one.
 * @param module name of a folder in `e2e/go`, e.g. `kubernetes-1.36`
 * @param list name of the file, without `.go`, that imports the programs
 * @returns the folder with the programs, named as `go build` names them
 * @throws GoBuildError `go-build-failed`; PackageError where there is no Go and none can be fetched
 */
export async function ensureGoPrograms(cacheDir: string, module: string, log: Log, list = 'tools'): Promise<string> {
  const source = goModuleFolder(module);
  const target = goProgramsFolder(cacheDir, module, list);
  if (existsSync(target)) {
    markUsed(target);
    return target;
  }
  const go = findGo(cacheDir, log);
  const goDir = join(cacheDir, 'go');
  mkdirSync(goDir, { recursive: true });
  removeStaleBuilds(goDir);
  // Built in a temporary folder and renamed: an existing folder is complete.
  const unfinished = mkdtempSync(join(goDir, `build-${process.pid}-`));
  try {
    await build(go, module, programPackages(source, list), unfinished, log);
    moveIntoPlace(unfinished, target);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return target;
}

/**
 * Removes programs that no checkout has used lately, and the unfinished folders of killed builds: their names contain the pid
 * of a process that has ended.
 * @param goDir the folder `go` of the cache
 */
export function removeStaleBuilds(goDir: string): void {
  for (const name of readdirSync(goDir)) {
    const path = join(goDir, name);
    const isStale = name.startsWith('build-') ? !existsSync(`/proc/${name.split('-')[1]}`) : isUnused(path);
    if (isStale) rmSync(path, { recursive: true, force: true });
  }
}

/** The cache folder of a module's programs, whether or not it exists yet. */
export function goProgramsFolder(cacheDir: string, module: string, list = 'tools'): string {
  const source = goModuleFolder(module);
  const hash = createHash('sha256');
  for (const name of readdirSync(source).sort()) hash.update(`${name}\0`).update(readFileSync(join(source, name)));
  const name = list === 'tools' ? module : `${module}-${list}`;
  return join(cacheDir, 'go', `${name}-${hash.digest('hex').slice(0, 12)}`);
}

/** The version that one of our modules pins, e.g. `1.36.3`; `undefined` if its go.mod does not require that module. */
export function pinnedVersion(module: string, required: string): string | undefined {
  const goMod = readFileSync(join(goModuleFolder(module), 'go.mod'), 'utf8');
  const words = goMod.split('\n').find((line) => line.replace(/^(require)?\s*/, '').startsWith(`${required} v`));
  return / v([^ ]+)/.exec(words ?? '')?.[1];
}

async function build(go: GoToolchain, module: string, packages: string[], target: string, log: Log): Promise<void> {
  const source = goModuleFolder(module);
  log(`building ${module}: ${packages.map((each) => basename(each)).join(', ')}`);
  const args = [
    'build',
    '-v',
    '-trimpath',
    '-buildvcs=false',
    // The linker drops debug information (-w), so the compiler need not generate it: saves a tenth of its time.
    '-gcflags=all=-dwarf=false',
    '-ldflags',
    linkerFlags(module).join(' '),
    '-o',
    `${target}/`,
    ...packages,
  ];
  // Not the caller's GOFLAGS: they may request a vendor folder or another module file.
  // The compiler spends much of its time on garbage collection unless it may use more memory.
  // Some distributions of Go set GOTOOLCHAIN=local, which never downloads the newer Go that a module needs.
  const env = { GOGC: '200', GOTOOLCHAIN: 'auto', ...process.env, ...go.env, CGO_ENABLED: '0', GOFLAGS: '' };
  // Killed when this process ends, in whatever way.
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', go.program, ...args], {
    cwd: source,
    env,
    stdio: ['ignore', 'inherit', 'pipe'],
  });
  const startedAt = performance.now();
  const seconds = () => Math.round((performance.now() - startedAt) / 1_000);
  let [packagesBuilt, tail] = [0, ''];
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    packagesBuilt += chunk.split('\n').length - 1;
    tail = (tail + chunk).slice(-4_000);
  });
  const progress = setInterval(() => log(`building ${module}: ${packagesBuilt} packages, ${seconds()} s`), progressMs);
  const { promise, resolve, reject } = Promise.withResolvers<number | null>();
  child.once('error', reject).once('close', resolve);
  const code = await promise.finally(() => clearInterval(progress));
  if (code !== 0) {
    throw new GoBuildError('go-build-failed', `${module} cannot be built; go build ended with ${code}:\n${tail}`, {
      path: source,
      hint: 'the Go module proxy has to be reachable, or the module cache filled',
    });
  }
  log(`built ${module} in ${seconds()} s`);
}

function programPackages(source: string, list: string): string[] {
  const path = join(source, `${list}.go`);
  if (!existsSync(path)) return ['.'];
  return [...readFileSync(path, 'utf8').matchAll(/^\t_ "(.+)"$/gm)].map(([, path = '']) => path);
}

/** Kubernetes gets its version from the linker; without one it reports v0.0.0, which charts refuse. */
function linkerFlags(module: string): string[] {
  const version = pinnedVersion(module, 'k8s.io/kubernetes');
  if (version === undefined) return ['-s', '-w'];
  const [major, minor] = version.split('.');
  const variables = { gitVersion: `v${version}`, gitMajor: major, gitMinor: minor };
  const settings = Object.entries(variables).map(
    ([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`,
  );
  return ['-s', '-w', ...settings];
}
