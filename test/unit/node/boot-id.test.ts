import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readBootId } from '../../../src/node/boot-id.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

it("readBootId returns the kernel's boot ID, and throws an error if the kernel has none", async () => {
  using dir = tempDir();
  const path = join(dir.path, 'boot_id');
  writeFileSync(path, 'd3c1…\n');
  expect(await readBootId(path)).toBe('d3c1…');
  writeFileSync(path, '\n');
  await expect(readBootId(path)).rejects.toThrow(`cannot read the boot id of the node from ${path}`);
  await expect(readBootId(join(dir.path, 'missing'))).rejects.toMatchObject({ code: 'boot-id-unknown' });
  expect(await readBootId()).toMatch(/^[0-9a-f-]{36}$/);
});
