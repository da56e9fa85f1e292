import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PolicyFile } from '../../../../src/driver/devices/policy-file.ts';
import { textFiles } from '../../../../src/lib/text-files.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const head = 'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n';

describe('PolicyFile', () => {
  it('reports a policy once, and again when the file changes', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'policy.yaml');
    const file = new PolicyFile(path, textFiles);
    const seen: unknown[] = [];
    writeFileSync(path, `${head}pfs:\n  - select: { name: ens1f0 }\n    vfs: 0-3\n    numVfs: 8\n`);
    await file.follow((policy) => seen.push(policy));
    await file.follow((policy) => seen.push(policy));
    writeFileSync(path, `${head}nics: [{ select: { driver: ice } }]\nresourceName: example.com/all`);
    await file.follow((policy) => seen.push(policy));
    expect(seen).toEqual([
      { pfs: [{ select: { name: 'ens1f0' }, vfs: '0-3', numVfs: 8 }] },
      { nics: [{ select: { driver: 'ice' } }], resourceName: 'example.com/all' },
    ]);
  });

  it.each([
    [`${head}pfs: [{ select: { vendor: intel } }]`, /pfs\.0\.select\.vendor: four lower-case hexadecimal digits/],
    [`${head}pfs: [{ select: { vendor: 8086 } }]`, /pfs\.0\.select\.vendor: .*put it in quotes/],
    [`${head}pfs: [{ select: { device: ["10ca", 8086] } }]`, /pfs\.0\.select\.device\.1: .*put it in quotes/],
    [`${head}pfs: [{ select: { device: ["10ca", "10CB"] } }]`, /pfs\.0\.select\.device\.1: four lower-case/],
    [`${head}pfs: [{ select: { device: [] } }]`, /pfs\.0\.select\.device: /],
    [`${head}pfs: [{ select: { pciAddress: "3b:00.0" } }]`, /pfs\.0\.select\.pciAddress: a PCI address with domain/],
    [`${head}pfs: [{ select: { linkType: eth } }]`, /pfs\.0\.select\.linkType: .*"ethernet"/],
    [`${head}pfs: [{ select: { numa: 1 } }]`, /pfs\.0\.select: there is no field "numa" here/],
    [`${head}pfs: [{ select: {}, vfs: all }]`, /pfs\.0\.vfs: indices and ranges/],
    [`${head}pfs: [{ select: {}, vfs: 3 }]`, /pfs\.0\.vfs: .*put it in quotes/],
    [`${head}pfs: [{ select: {}, vfs: 3-1 }]`, /pfs\.0\.vfs: a range ends before it begins/],
    [`${head}pfs: [{ select: {}, numVfs: -1 }]`, /pfs\.0\.numVfs: /],
    [`${head}pfs: [{ vfs: "1" }]`, /pfs\.0\.select: /],
    [`${head}nics: [{ select: {} }]`, /nics\.0\.select: at least one field/],
    [`${head}nics: [{ select: { name: x }, vfs: "1" }]`, /nics\.0: there is no field "vfs" here/],
    [`${head}resourceName: "-x"`, /resourceName: a name such as example\.com\/sriov/],
    [`${head}resourceName: ${'x'.repeat(65)}`, /resourceName: must be at most 64 characters/],
    [`${head}taints: { noCarrier: Never }`, /taints\.noCarrier: "None" or "NoSchedule" or "NoExecute" is needed/],
    [`${head}taints: { hung: None }`, /taints\.hung: "NoSchedule" or "NoExecute" is needed/],
    [`${head}health: { lacpRelay: 1 }`, /health\.lacpRelay: true or false is needed/],
    [`${head}taints: { carrier: None }`, /taints: there is no field "carrier" here/],
    [`${head}colour: red`, /document: there is no field "colour" here.* \(line 3\)/],
    ['kind: InventoryPolicy', /apiVersion: /],
    [`${head}pfs:\n  - select:\n      vendor: intel\n`, /pfs\.0\.select\.vendor: .* \(line 5\)$/],
    [`${head}\npfs:\n  - select: { name: a }\n  - numVfs: 8\n`, /pfs\.1\.select: is missing \(line 6\)$/],
    [`${head}pfs: ["a",\n  "b"]`, /pfs\.0: a map of fields is needed \(line 3\); pfs\.1: .* \(line 4\)$/],
    [`${head}pfs: {}`, /pfs: a list is needed \(line 3\)$/],
    [`${head}? [a, b]\n: x\n`, /is invalid|is not valid YAML/],
    ['kind: InventoryPolicy\npfs: []', /apiVersion: "netdra\.dev\/v1alpha1" is needed/],
    [`${head}pfs:\n  - select: {\n`, /is not valid YAML: .* \(line \d\)$/],
    ['- a\n- b\n', /document: a map of fields is needed \(line 1\)$/],
    ['{', /is not valid YAML/],
    ['', /is not valid YAML/],
    [
      Array.from({ length: 7 }, (_, n) => `l${n}: &l${n} [${Array(8).fill(n === 0 ? 'x' : `*l${n - 1}`)}]`).join('\n'),
      /has more than 100000 values when its aliases are expanded/,
    ],
    ['a: &a [*a]', /is nested more than 64 levels deep/],
  ])('rejects %j, and says what is wrong', async (text, message) => {
    using dir = tempDir();
    const path = join(dir.path, 'policy.yaml');
    writeFileSync(path, text);
    await expect(new PolicyFile(path, textFiles).follow(() => undefined)).rejects.toThrow(message);
  });

  it('reports all errors of a file at once', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'policy.yaml');
    writeFileSync(path, `${head}pfs: [{ select: { vendor: intel }, numVfs: x }]`);
    await expect(new PolicyFile(path, textFiles).follow(() => undefined)).rejects.toMatchObject({
      code: 'policy-invalid',
      path,
      message: expect.stringMatching(/pfs\.0\.select\.vendor: .*; pfs\.0\.numVfs: /),
    });
  });

  it('names a missing file', async () => {
    await expect(new PolicyFile('/nowhere/policy.yaml', textFiles).follow(() => undefined)).rejects.toThrow(
      '/nowhere/policy.yaml',
    );
  });

  it('keeps the last valid policy while the file is broken or missing, and logs why', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'policy.yaml');
    const file = new PolicyFile(path, textFiles);
    const seen: unknown[] = [];
    const follow = () => file.follow((policy) => seen.push(policy));
    writeFileSync(path, head);
    expect(await follow()).toBeUndefined();
    writeFileSync(path, `${head}colour: red`);
    const invalid = { code: 'policy-invalid', message: expect.stringContaining('colour') };
    for (const _ of [1, 2]) expect(await follow()).toMatchObject(invalid);
    rmSync(path);
    expect(await follow()).toMatchObject({ message: `cannot read inventory policy ${path}` });
    expect(seen).toEqual([{}]);
    writeFileSync(path, `${head}pfs: []`);
    expect(await follow()).toBeUndefined();
    expect(seen).toEqual([{}, { pfs: [] }]);
  });
});
