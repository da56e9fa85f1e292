import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { debianSources } from '../../../scripts/packages/debian-packages.ts';
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
