import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fetchDebianPackages, packageFolder } from '../../../scripts/packages/debian-packages.ts';

describe('fetchDebianPackages', () => {
  let dir: string;
  let cacheDir: string;
  let aptDir: string;
  const lines: string[] = [];
  const log = (line: string) => lines.push(line);
  const wanted = { name: 'runc', suite: 'bookworm' };

  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'packages-'));
    cacheDir = join(dir, 'cache');
    aptDir = join(dir, 'apt');
    mkdirSync(join(aptDir, 'sources.list.d'), { recursive: true });
    lines.length = 0;
  });
  afterEach(() => rmSync(dir, { recursive: true }));

  it('asks nobody for what is there', () => {
    mkdirSync(packageFolder(cacheDir, wanted), { recursive: true });
    fetchDebianPackages(cacheDir, [wanted], log, join(dir, 'no-apt'));
    expect(lines).toEqual([]);
  });

  it('says what is missing, and what to do, where there is no Debian mirror', () => {
    writeFileSync(join(aptDir, 'sources.list'), 'deb http://archive.example/ubuntu noble main\n');
    const fetch = () => fetchDebianPackages(cacheDir, [wanted], log, aptDir);
    expect(fetch).toThrow('cannot fetch runc (bookworm): no Debian mirror');
    expect(fetch).toThrow(expect.objectContaining({ code: 'no-debian-mirror', hint: expect.stringContaining('PATH') }));
  });

  it('says what cannot be had, and leaves nothing half done', () => {
    const mirror = join(dir, 'empty', 'debian');
    mkdirSync(mirror, { recursive: true });
    writeFileSync(
      join(aptDir, 'sources.list.d', 'debian.sources'),
      `Types: deb\nURIs: file:${mirror}\nSuites: bookworm\nComponents: main\n`,
    );
    const fetch = () => fetchDebianPackages(cacheDir, [wanted], log, aptDir);
    expect(fetch).toThrow(
      expect.objectContaining({ code: 'package-unavailable', message: expect.stringContaining('runc') }),
    );
    expect(lines).toEqual(['fetching Debian packages: runc (bookworm)']);
    expect(existsSync(packageFolder(cacheDir, wanted))).toBe(false);
    expect(readdirSync(join(cacheDir, 'debian'))).toEqual([]);
  });
});
