import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { defined } from '../../src/lib/defined.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { type AptSource, findDebianMirror, parseDeb822Sources, parseOneLineSources } from './apt-sources.ts';
import { moveIntoPlace } from './cache.ts';
import { run } from './run.ts';

/** A Debian package, of a suite that may differ from the machine's. */
export interface DebianPackage {
  name: string;
  /** Codename of the release, e.g. `forky`. */
  suite: string;
}

/** A required package that is not available on this machine. */
export class PackageError extends NetdraError {}

/** The folder below the cache into which a package is unpacked, whether or not it exists yet. */
export function packageFolder(cacheDir: string, { name, suite }: DebianPackage): string {
  return join(cacheDir, 'debian', suite, name);
}

/**
 * Unpacks those of the packages that the cache does not have yet. apt runs with lists, sources and a package database
 * of its own: the machine's are not changed, and only read for the address of its mirror. A package is unpacked
 * without its dependencies. Unpacked packages are never looked up again.
 * @param aptDir folder with the machine's sources, `/etc/apt`
 * @throws PackageError `package-unavailable`, `no-debian-mirror`
 */
export function fetchDebianPackages(
  cacheDir: string,
  packages: DebianPackage[],
  log: (line: string) => void,
  aptDir = '/etc/apt',
): void {
  const missing = packages.filter((each) => !existsSync(packageFolder(cacheDir, each)));
  if (missing.length === 0) return;
  const names = missing.map(({ name, suite }) => `${name} (${suite})`).join(', ');
  const sources = debianSources(aptDir, [...new Set(missing.map(({ suite }) => suite))], names);
  mkdirSync(join(cacheDir, 'debian'), { recursive: true });
  const workDir = mkdtempSync(join(cacheDir, 'debian', 'fetch-'));
  try {
    log(`fetching Debian packages: ${names}`);
    const apt = prepareApt(workDir, sources);
    downloadPackages(apt, workDir, missing, names);
    for (const each of missing) unpackPackage(workDir, cacheDir, each);
  } finally {
    rmSync(workDir, { recursive: true, force: true });
  }
}

/**
 * Lines of a sources list for the suites, from the machine's mirror.
 * @param architecture Debian's name of another processor
 */
export function debianSources(aptDir: string, suites: string[], neededFor: string, architecture?: string): string {
  const mirror = findMirror(aptDir);
  if (!mirror) {
    throw new PackageError('no-debian-mirror', `cannot fetch ${neededFor}: no Debian mirror in ${aptDir}`, {
      path: aptDir,
      hint: 'set NETDRA_DEBIAN_MIRROR to the address of one',
    });
  }
  const keyring = [
    '/usr/share/keyrings/debian-archive-keyring.gpg',
    '/usr/share/keyrings/debian-archive-keyring.pgp',
    mirror.signedBy,
  ].find((path) => path !== undefined && existsSync(path));
  const settings = Object.entries(defined({ arch: architecture, 'signed-by': keyring })).map(
    ([name, value]) => `${name}=${value}`,
  );
  const options = settings.length === 0 ? '' : `[${settings.join(' ')}] `;
  return suites.map((suite) => `deb ${options}${mirror.uri} ${suite} main\n`).join('');
}

/** Returns the mirror that NETDRA_DEBIAN_MIRROR names, or else the one that apt knows. */
export function findMirror(aptDir: string): Pick<AptSource, 'uri' | 'signedBy'> | undefined {
  const uri = process.env.NETDRA_DEBIAN_MIRROR;
  return uri ? { uri } : findDebianMirror(readAptSources(aptDir));
}

function readAptSources(aptDir: string): AptSource[] {
  const partsDir = join(aptDir, 'sources.list.d');
  const parts = existsSync(partsDir) ? readdirSync(partsDir).map((name) => join(partsDir, name)) : [];
  return [join(aptDir, 'sources.list'), ...parts.sort()].filter(existsSync).flatMap((path) => {
    if (path.endsWith('.sources')) return parseDeb822Sources(readFileSync(path, 'utf8'));
    return path.endsWith('.list') ? parseOneLineSources(readFileSync(path, 'utf8')) : [];
  });
}

/** @returns options that restrict apt-get to `workDir`, and to packages of another processor if one is named */
export function prepareApt(workDir: string, sources: string, architecture?: string): string[] {
  for (const folder of ['lists/partial', 'cache/archives/partial'])
    mkdirSync(join(workDir, folder), { recursive: true });
  writeFileSync(join(workDir, 'sources.list'), sources);
  writeFileSync(join(workDir, 'status'), '');
  const settings = {
    'Dir::Etc::SourceList': join(workDir, 'sources.list'),
    'Dir::Etc::SourceParts': '/dev/null',
    'Dir::Etc::Preferences': '/dev/null',
    'Dir::Etc::PreferencesParts': '/dev/null',
    'Dir::State::Lists': join(workDir, 'lists'),
    'Dir::State::Status': join(workDir, 'status'),
    'Dir::Cache': join(workDir, 'cache'),
    // Some machines switch these caches off; without them each call of apt reads all lists again.
    'Dir::Cache::pkgcache': 'pkgcache.bin',
    'Dir::Cache::srcpkgcache': 'srcpkgcache.bin',
    'Acquire::Languages': 'none',
    // The user that apt uses for downloads may not be able to write here.
    'APT::Sandbox::User': 'root',
    ...(architecture === undefined ? {} : { 'APT::Architecture': architecture, 'APT::Architectures::': architecture }),
  };
  return ['-q', ...Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])];
}

function downloadPackages(apt: string[], workDir: string, packages: DebianPackage[], names: string): void {
  try {
    run('apt-get', [...apt, '-o', 'APT::Update::Error-Mode=any', 'update'], {
      cwd: workDir,
      timeoutMs: 300_000,
      name: 'apt-get update',
    });
    for (const suite of new Set(packages.map((each) => each.suite))) {
      // One folder per suite: two of them can have a package of the same name.
      mkdirSync(join(workDir, suite));
      const wanted = packages.filter((each) => each.suite === suite).map(({ name }) => `${name}/${suite}`);
      run('apt-get', [...apt, 'download', ...wanted], {
        cwd: join(workDir, suite),
        timeoutMs: 600_000,
        name: `apt-get download ${wanted.join(' ')}`,
      });
    }
  } catch (cause) {
    throw new PackageError('package-unavailable', `cannot fetch ${names} from this machine's Debian mirror`, {
      cause,
      hint: 'check that `apt-get update` works; a mirror of one release only has no other suites',
    });
  }
}

/** Unpacks into a temporary folder and renames it: an existing folder is complete. */
export function unpackPackage(workDir: string, cacheDir: string, wanted: DebianPackage): void {
  const downloads = join(workDir, wanted.suite);
  const file = readdirSync(downloads).find((name) => name.startsWith(`${wanted.name}_`) && name.endsWith('.deb'));
  if (file === undefined) {
    throw new PackageError('package-unavailable', `apt-get left no file for ${wanted.name} (${wanted.suite})`);
  }
  const unpacked = join(workDir, 'unpacked');
  run('dpkg-deb', ['-x', join(downloads, file), unpacked]);
  const target = packageFolder(cacheDir, wanted);
  mkdirSync(join(target, '..'), { recursive: true });
  moveIntoPlace(unpacked, target);
}
