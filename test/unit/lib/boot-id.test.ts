import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readBootId } from '../../../src/lib/boot-id.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

it("readBootId returns the kernel's boot ID, and throws an error if the kernel has none", () => {
  using dir = tempDir();
  const path = join(dir.path, 'boot_id');
  writeFileSync(path, 'd3c1…\n');
  expect(readBootId(path)).toBe('d3c1…');
  writeFileSync(path, '\n');
  expect(() => readBootId(path)).toThrow(`cannot read the boot id of the node from ${path}`);
  expect(() => readBootId(join(dir.path, 'missing'))).toThrow(expect.objectContaining({ code: 'boot-id-unknown' }));
  expect(readBootId()).toMatch(/^[0-9a-f-]{36}$/);
});
