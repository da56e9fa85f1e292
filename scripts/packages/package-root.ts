import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { debianSources, PackageError, prepareApt } from './debian-packages.ts';
import { closeOverDependencies, parseAptDepends } from './dependencies.ts';
import { CommandError, run } from './run.ts';

/** Debian packages that are unpacked into one folder, with what they depend on. */
export interface PackageSet {
  /** Codename of the release, e.g. `trixie`. */
  suite: string;
  /** Names; one that ends in `*` stands for all packages whose names begin so: for those with a version in the name. */
  packages: string[];
  /** Dependencies that are left out, with what only they need. */
  without: string[];
  /** Debian's name of the processor that they are for; absent: this machine's. */
  architecture?: string;
}

const strongDependenciesOnly = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
  (kind) => `--no-${kind}`,
);

/** Below the folder of a set: its files, and what it is made of, a line `name_version_architecture` each. */
export const packageSetFiles = { root: 'root', list: 'packages' };

/**
 * Unpacks the newest versions of the packages into the folder `root` in `dir`. Their scripts do not run; nothing is
 * installed on the machine, and of its apt only the address of the mirror is used.
 * @param dir an empty folder
 * @param aptDir where the mirror is noted, as in /etc/apt
 * @throws PackageError `package-unavailable`, `no-debian-mirror`; CommandError
 */
export function unpackPackageSet(dir: string, set: PackageSet, aptDir: string): void {
  const sources = debianSources(aptDir, [set.suite], set.packages.join(', '), set.architecture);
  const workDir = join(dir, 'work');
  const downloads = join(workDir, 'downloads');
  const root = join(dir, packageSetFiles.root);
  for (const folder of [downloads, root]) mkdirSync(folder, { recursive: true });
  downloadPackageSet(prepareApt(workDir, sources, set.architecture), downloads, set);
  const files = readdirSync(downloads).filter((name) => name.endsWith('.deb'));
  for (const file of files.sort(baseFilesFirst)) run('dpkg-deb', ['-x', join(downloads, file), root]);
  const lines = files.map((name) => `${decodeURIComponent(name.replace(/\.deb$/, ''))}\n`).sort();
  writeFileSync(join(dir, packageSetFiles.list), lines.join(''));
  rmSync(workDir, { recursive: true });
}

function downloadPackageSet(apt: string[], downloads: string, set: PackageSet): void {
  try {
    run('apt-get', [...apt, '-o', 'APT::Update::Error-Mode=any', 'update'], { cwd: downloads, timeoutMs: 300_000 });
    const names = resolvePackages(apt, set);
    run('apt-get', [...apt, 'download', ...names], { cwd: downloads, timeoutMs: 900_000 });
  } catch (cause) {
    if (!(cause instanceof CommandError)) throw cause;
    throw new PackageError('package-unavailable', `cannot fetch ${set.packages.join(', ')} of Debian ${set.suite}`, {
      cause,
      hint: 'check that `apt-get update` works; a mirror of one release only has no other suites',
    });
  }
}

function resolvePackages(apt: string[], { packages, without }: PackageSet): string[] {
  const roots = packages.flatMap((name) => {
    if (!name.endsWith('*')) return [name];
    const found = run('apt-cache', [...apt, 'pkgnames', name.slice(0, -1)]).trim();
    if (found === '') throw new PackageError('package-unavailable', `no Debian package has a name like ${name}`);
    return found.split('\n');
  });
  const text = run('apt-cache', [...apt, 'depends', '--recurse', ...strongDependenciesOnly, ...roots]);
  return closeOverDependencies(parseAptDepends(text), roots, without);
}

/** It brings /bin, /lib and /sbin as links into /usr, which must be there before something is unpacked below them. */
function baseFilesFirst(a: string, b: string): number {
  return Number(b.startsWith('base-files_')) - Number(a.startsWith('base-files_')) || (a < b ? -1 : 1);
}
