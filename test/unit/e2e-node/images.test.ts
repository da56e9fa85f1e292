import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstatSync, mkdtempSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { encodeOciArchive } from '../../../e2e/node/oci-image.ts';
import { encodeTar, type TarEntry } from '../../../e2e/node/tar.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'tar-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

const unpack = (archive: Buffer) => execFileSync('tar', ['-x', '--no-same-owner', '-C', dir], { input: archive });

describe('encodeTar', () => {
  it('makes what tar unpacks', () => {
    unpack(
      encodeTar([
        { type: 'directory', path: 'bin' },
        { type: 'directory', path: 'tmp', mode: 0o1777 },
        { type: 'file', path: 'bin/program', mode: 0o755, data: Buffer.from('text') },
        { type: 'symlink', path: 'bin/link', target: 'program' },
      ]),
    );
    expect(readFileSync(join(dir, 'bin', 'program'), 'utf8')).toBe('text');
    expect(readlinkSync(join(dir, 'bin', 'link'))).toBe('program');
    expect(lstatSync(join(dir, 'bin', 'program')).mode & 0o777).toBe(0o755);
    expect(lstatSync(join(dir, 'tmp')).isDirectory()).toBe(true);
  });

  it('keeps the bytes of files of any size', () => {
    const file = fc.uint8Array({ maxLength: 2_000 });
    fc.assert(
      fc.property(fc.array(file, { maxLength: 4 }), (files) => {
        unpack(encodeTar(files.map((data, index): TarEntry => ({ type: 'file', path: `f${index}`, data }))));
        for (const [index, data] of files.entries()) {
          expect(readFileSync(join(dir, `f${index}`)).equals(data)).toBe(true);
        }
      }),
      { numRuns: 20 },
    );
  });

  it('refuses a name that has no room', () => {
    expect(() => encodeTar([{ type: 'directory', path: 'x'.repeat(101) }])).toThrow(RangeError);
    expect(() => encodeTar([{ type: 'symlink', path: 'x', target: 'y'.repeat(101) }])).toThrow(RangeError);
  });
});

describe('encodeOciArchive', () => {
  interface Descriptor {
    digest: string;
    size: number;
    annotations?: Record<string, string>;
    platform?: object;
  }
  const readBlob = ({ digest, size }: Descriptor) => {
    const data = readFileSync(join(dir, 'blobs', ...digest.split(':')));
    expect(data.length).toBe(size);
    expect(`sha256:${createHash('sha256').update(data).digest('hex')}`).toBe(digest);
    return data;
  };

  it('describes every blob by its digest and size, from the index to the files', () => {
    const files: TarEntry[] = [{ type: 'file', path: 'hello', data: Buffer.from('hello') }];
    unpack(encodeOciArchive([{ name: 'localhost/a:1', files, cmd: ['hello'] }], 'x64'));
    const index = JSON.parse(readFileSync(join(dir, 'index.json'), 'utf8')) as { manifests: Descriptor[] };
    expect(index.manifests).toHaveLength(1);
    const [entry] = index.manifests as [Descriptor];
    expect(entry).toMatchObject({
      annotations: { 'io.containerd.image.name': 'localhost/a:1' },
      platform: { architecture: 'amd64', os: 'linux' },
    });
    const manifest = JSON.parse(readBlob(entry).toString()) as { config: Descriptor; layers: [Descriptor] };
    const layer = readBlob(manifest.layers[0]);
    expect(layer.equals(encodeTar(files))).toBe(true);
    expect(JSON.parse(readBlob(manifest.config).toString())).toMatchObject({
      architecture: 'amd64',
      config: { Cmd: ['hello'] },
      rootfs: { type: 'layers', diff_ids: [manifest.layers[0].digest] },
    });
  });

  it('holds a layer that two images share once, and gives the same bytes each time', () => {
    const files: TarEntry[] = [{ type: 'file', path: 'big', data: Buffer.alloc(100_000, 1) }];
    const images = [
      { name: 'localhost/a:1', files, cmd: ['a'] },
      { name: 'localhost/b:1', files, cmd: ['b'] },
    ];
    const archive = encodeOciArchive(images);
    expect(archive.length).toBeLessThan(150_000);
    expect(encodeOciArchive(images).equals(archive)).toBe(true);
  });
});
