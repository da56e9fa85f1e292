import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeCpio } from '../../../e2e/vm/image/cpio.ts';

interface Member {
  path: string;
  mode: number;
  text: string;
}

/** Reads an archive as the kernel does. Source: kernel Documentation/driver-api/early-userspace/buffer-format.rst. */
function decodeCpio(archive: Buffer): Member[] {
  const members: Member[] = [];
  const pad = (offset: number) => (offset + 3) & ~3;
  for (let offset = 0; ; ) {
    expect(archive.toString('latin1', offset, offset + 6)).toBe('070701');
    const number = (index: number) =>
      Number.parseInt(archive.toString('latin1', offset + 6 + 8 * index, offset + 14 + 8 * index), 16);
    const [mode, size, nameSize] = [number(1), number(6), number(11)];
    const path = archive.toString('utf8', offset + 110, offset + 110 + nameSize - 1);
    const start = pad(offset + 110 + nameSize);
    if (path === 'TRAILER!!!') return members;
    members.push({ path, mode, text: archive.toString('utf8', start, start + size) });
    offset = pad(start + size);
  }
}

describe('encodeCpio', () => {
  it('writes folders, files and links with their modes', () => {
    const archive = encodeCpio([
      { type: 'directory', path: 'bin' },
      { type: 'file', path: 'bin/sh', mode: 0o755, data: Buffer.from('program') },
      { type: 'file', path: 'etc', data: Buffer.from('') },
      { type: 'symlink', path: 'init', target: 'bin/sh' },
    ]);
    expect(decodeCpio(archive)).toEqual([
      { path: 'bin', mode: 0o040755, text: '' },
      { path: 'bin/sh', mode: 0o100755, text: 'program' },
      { path: 'etc', mode: 0o100644, text: '' },
      { path: 'init', mode: 0o120777, text: 'bin/sh' },
    ]);
  });

  it('keeps names and contents of all lengths apart', () => {
    const entry = fc.record({ path: fc.stringMatching(/^[a-z]{1,12}$/), text: fc.string({ unit: 'binary' }) });
    fc.assert(
      fc.property(fc.array(entry), (entries) => {
        const files = entries.map(({ path, text }) => ({ type: 'file' as const, path, data: Buffer.from(text) }));
        const found = decodeCpio(encodeCpio(files));
        expect(found.map(({ path, text }) => ({ path, text }))).toEqual(
          entries.map(({ path, text }) => ({ path, text: Buffer.from(text).toString() })),
        );
      }),
    );
  });
});
