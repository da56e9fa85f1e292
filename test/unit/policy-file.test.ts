import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PolicyFile } from '../../src/policy-file.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const head = 'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n';

describe('PolicyFile', () => {
  it('tells of a policy once, and again when the file changes', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'policy.yaml');
    const file = new PolicyFile(path);
    const seen: unknown[] = [];
    writeFileSync(path, `${head}pfs:\n  - select: { name: ens1f0 }\n    vfs: 0-3\n    numVfs: 8\n`);
    await file.follow((policy) => seen.push(policy));
    await file.follow((policy) => seen.push(policy));
    writeFileSync(path, head);
    await file.follow((policy) => seen.push(policy));
    expect(seen).toEqual([{ pfs: [{ select: { name: 'ens1f0' }, vfs: '0-3', numVfs: 8 }] }, {}]);
  });

  it.each([
    [`${head}pfs: [{ select: { vendor: intel } }]`, /pfs\.0\.select\.vendor: four lower-case hexadecimal digits/],
    [`${head}pfs: [{ select: {}, vfs: all }]`, /pfs\.0\.vfs: indices and ranges/],
    [`${head}pfs: [{ vfs: "1" }]`, /pfs\.0\.select: /],
    [`${head}colour: red`, /Unrecognized key: "colour"/],
    ['kind: InventoryPolicy', /apiVersion: /],
    ['{', /is no YAML/],
  ])('refuses %j with the field', async (text, message) => {
    using dir = tempDir();
    const path = join(dir.path, 'policy.yaml');
    writeFileSync(path, text);
    await expect(new PolicyFile(path).follow(() => undefined)).rejects.toThrow(message);
  });

  it('says which file is missing', async () => {
    await expect(new PolicyFile('/nowhere/policy.yaml').follow(() => undefined)).rejects.toThrow(
      '/nowhere/policy.yaml',
    );
  });
});
