import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  type DebianPackage,
  debianSources,
  packageFolder,
  unpackPackage,
} from '../../../scripts/packages/debian-packages.ts';
import { run } from '../../../scripts/packages/run.ts';
import { mirror } from '../../../scripts/tests/part.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const ubuntu = 'Types: deb\nURIs: http://archive.example/ubuntu/\nSuites: noble\nComponents: main\n';
const debian = 'Types: deb\nURIs: http://archive.example/debian\nSuites: trixie\nComponents: main\n';

/** A folder like /etc/apt with one entry. */
function makeAptDir(sources: string): string {
  const dir = tempDir();
  onTestFinished(() => dir[Symbol.dispose]());
  mkdirSync(join(dir.path, 'sources.list.d'));
  writeFileSync(join(dir.path, 'sources.list.d/machine.sources'), sources);
  return dir.path;
}

function setMirror(uri: string | undefined): void {
  vi.stubEnv('NETDRA_DEBIAN_MIRROR', uri);
  onTestFinished(() => void vi.unstubAllEnvs());
}

describe('the requirement of a Debian mirror', () => {
  it('is met by the mirror that apt knows', () => {
    setMirror(undefined);
    expect(mirror(makeAptDir(debian)).problem()).toBeUndefined();
    expect(debianSources(makeAptDir(debian), ['bookworm'], 'runc')).toMatch(
      /^deb (\[.*\] )?http:\/\/archive\.example\/debian bookworm main\n$/,
    );
  });

  it('is not met on a machine whose apt knows only another distribution', () => {
    setMirror(undefined);
    expect(mirror(makeAptDir(ubuntu)).problem()).toContain('NETDRA_DEBIAN_MIRROR');
  });

  it('is met by NETDRA_DEBIAN_MIRROR, which all packages are fetched from', () => {
    setMirror('http://other.example/debian');
    expect(mirror(makeAptDir(ubuntu)).problem()).toBeUndefined();
    expect(debianSources(makeAptDir(debian), ['bookworm'], 'runc')).toContain('http://other.example/debian bookworm');
  });
});

const hasDpkg = spawnSync('dpkg-deb', ['--version']).status === 0;

describe.runIf(hasDpkg)('unpackPackage', () => {
  it('keeps a package that another run has unpacked meanwhile, and unpacks the next one', () => {
    using dir = tempDir();
    const [cacheDir, workDir] = [join(dir.path, 'cache'), join(dir.path, 'work')];
    const [first, second] = ['first', 'second'].map((name) => ({ name, suite: 'bookworm' })) as [
      DebianPackage,
      DebianPackage,
    ];
    for (const each of [first, second]) makePackage(workDir, each);
    mkdirSync(packageFolder(cacheDir, first), { recursive: true });
    writeFileSync(join(packageFolder(cacheDir, first), 'by-another-run'), '');
    for (const each of [first, second]) unpackPackage(workDir, cacheDir, each);
    expect(readdirSync(packageFolder(cacheDir, first))).toEqual(['by-another-run']);
    expect(readdirSync(packageFolder(cacheDir, second))).toEqual(['second']);
  });
});

/** Makes a package with one file of its name, as if apt-get had downloaded it. */
function makePackage(workDir: string, { name, suite }: DebianPackage): void {
  const root = join(workDir, `root-${name}`);
  mkdirSync(join(root, 'DEBIAN'), { recursive: true });
  mkdirSync(join(workDir, suite), { recursive: true });
  const control = `Package: ${name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: a file\n`;
  writeFileSync(join(root, 'DEBIAN/control'), control);
  writeFileSync(join(root, name), '');
  run('dpkg-deb', ['--build', root, join(workDir, suite, `${name}_1_all.deb`)]);
}
