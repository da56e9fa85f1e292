import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findTool, locateTools, toolSources } from '../../../e2e/node/tools.ts';
import { packageFolder } from '../../../scripts/packages/debian-packages.ts';
import { isStaticProgram } from '../../../scripts/packages/elf.ts';
import { findFolderWith, parseContainerdVersion, pathFolders } from '../../../scripts/packages/host-programs.ts';
import { parseMissingLibraries } from '../../../scripts/packages/iproute.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'programs-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

/** Makes a program that prints a text. */
function writeProgram(path: string, prints = ''): void {
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, `#!/bin/sh\necho '${prints}'\n`);
  chmodSync(path, 0o755);
}

/** A file header with program headers of the given types right behind. */
function elf(...types: number[]): Buffer {
  const data = Buffer.alloc(64 + types.length * 56);
  data.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  data.writeBigUInt64LE(64n, 32);
  data.writeUInt16LE(56, 54);
  data.writeUInt16LE(types.length, 56);
  for (const [index, type] of types.entries()) data.writeUInt32LE(type, 64 + index * 56);
  return data;
}

describe('isStaticProgram', () => {
  const check = (data: Uint8Array) => {
    const path = join(dir, 'program');
    writeFileSync(path, data);
    return isStaticProgram(path);
  };

  it('is about the loader that a program asks for', () => {
    const [load, interp, note] = [1, 3, 4];
    expect(check(elf(load, note))).toBe(true);
    expect(check(elf(load, interp, note))).toBe(false);
  });

  it('is not true of anything else', () => {
    expect(check(Buffer.from('#!/bin/sh\n'))).toBe(false);
    expect(check(Buffer.alloc(0))).toBe(false);
    expect(check(elf(1).fill(0, 4, 5))).toBe(false);
    const far = elf(1);
    far.writeBigUInt64LE(1n << 40n, 32);
    expect(check(far)).toBe(false);
  });

  it('knows the program that runs this test for what it is', () => {
    expect(isStaticProgram(process.execPath)).toBe(false);
  });
});

describe('pathFolders', () => {
  it('leaves out what is not absolute', () => expect(pathFolders('/a:.::/b:c')).toEqual(['/a', '/b']));
});

describe('findFolderWith', () => {
  it('takes the first folder that has all programs', () => {
    writeProgram(join(dir, 'one', 'ctr'));
    writeProgram(join(dir, 'two', 'ctr'));
    writeProgram(join(dir, 'two', 'containerd'));
    mkdirSync(join(dir, 'one', 'containerd'));
    const folders = ['none', 'one', 'two'].map((name) => join(dir, name));
    expect(findFolderWith(folders, ['containerd', 'ctr'])).toBe(join(dir, 'two'));
    expect(findFolderWith(folders, ['runc'])).toBeUndefined();
  });
});

describe('parseContainerdVersion', () => {
  it.each([
    ['containerd github.com/containerd/containerd/v2 2.1.9+unknown \n', '2.1.9'],
    ['containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6\n', '1.7.24'],
    ['containerd github.com/containerd/containerd v1.7.20 8fc6bcff51318944179630522a095cc9dbf9f353\n', '1.7.20'],
    ['runc version 1.1.5', undefined],
    ['', undefined],
  ])('reads %j', (text, version) => expect(parseContainerdVersion(text)).toBe(version));
});

describe('parseMissingLibraries', () => {
  it('names what has no path', () => {
    const text =
      '\tlinux-vdso.so.1 (0x7f)\n\tlibbpf.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\tlibelf.so.1 => not found\n';
    expect(parseMissingLibraries(text)).toEqual(['libbpf.so.1', 'libelf.so.1']);
  });
});

describe('findTool', () => {
  const containerdIn = (folder: string, version: string) => {
    writeProgram(join(folder, 'containerd'), `containerd github.com/containerd/containerd/v2 ${version}`);
    for (const name of ['ctr', 'containerd-shim-runc-v2']) writeProgram(join(folder, name));
    return folder;
  };
  const cacheDir = () => join(dir, 'cache');

  it('takes a containerd of the machine when it is of the series, and the package otherwise', () => {
    const host = containerdIn(join(dir, 'host'), '2.3.1');
    const sources = toolSources({ PATH: host });
    expect(findTool(sources['2.1'], cacheDir())).toBe(host);
    expect(findTool(sources['1.7'], cacheDir())).toBeUndefined();
    const unpacked = containerdIn(join(packageFolder(cacheDir(), sources['1.7'].package), 'usr', 'bin'), '1.7.24');
    expect(findTool(sources['1.7'], cacheDir())).toBe(unpacked);
  });

  it('does not take 2.0, which is neither', () => {
    const sources = toolSources({ PATH: containerdIn(join(dir, 'host'), '2.0.5') });
    expect(findTool(sources['2.1'], cacheDir())).toBeUndefined();
    expect(findTool(sources['1.7'], cacheDir())).toBeUndefined();
  });

  it('prefers the folders that were named', () => {
    const [host, named] = [containerdIn(join(dir, 'host'), '2.1.0'), containerdIn(join(dir, 'named'), '2.2.1')];
    const sources = toolSources({ PATH: host, NETDRA_CONTAINERD_DIRS: `/nowhere:${named}` });
    expect(findTool(sources['2.1'], cacheDir())).toBe(named);
  });

  it('does not take a busybox that needs libraries', () => {
    mkdirSync(join(dir, 'host'));
    symlinkSync(process.execPath, join(dir, 'host', 'busybox'));
    expect(findTool(toolSources({ PATH: join(dir, 'host') }).busybox, cacheDir())).toBeUndefined();
  });
});

describe('locateTools', () => {
  it('says what is missing and which script fetches it', () => {
    expect(() => locateTools({ PATH: join(dir, 'empty'), NETDRA_CACHE: dir })).toThrow(
      expect.objectContaining({ code: 'tool-missing', hint: expect.stringContaining('in-node.sh') }),
    );
  });
});
