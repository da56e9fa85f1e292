import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { encodeObject } from '../../../../src/framework/metadata/document/codec.ts';
import { formatGoJson } from '../../../../src/framework/metadata/document/json-stream.ts';
import {
  type LayoutName,
  layoutNames,
  layouts,
  type MetadataDocument,
} from '../../../../src/framework/metadata/index.ts';
import * as arbitraries from './arbitraries.ts';
import { Bench } from './bench.ts';
import { claim, documentOf, recordOf, samples } from './samples.ts';

const root = new URL('../../../..', import.meta.url).pathname;
const text = readFileSync(join(root, 'docs/metadata.md'), 'utf8');
const schemaText = readFileSync(join(root, 'docs/metadata.schema.json'), 'utf8');
const schema = z.fromJSONSchema(JSON.parse(schemaText));

/** The objects of a file, as a plain JSON parser gives them. */
function objectsOf(stream: string): unknown[] {
  return stream
    .trim()
    .split(/(?<=^})\n(?={)/m)
    .map((object) => JSON.parse(object));
}

describe('docs/metadata.md', () => {
  const blocks = [...text.matchAll(/<!-- (test\/golden\/\S+) -->\n```json\n([\s\S]*?)\n```\n/g)];

  it('shows golden files as examples, of which the v1 file consists of the v1beta1 and kep objects', () => {
    for (const [, path = '', shown] of blocks) {
      expect(shown, path).toBe(readFileSync(join(root, path), 'utf8').trimEnd());
    }
    expect(blocks.map(([, path = '']) => path)).toEqual(['test/golden/v1beta1/kernel.golden']);
    const golden = (name: string) => readFileSync(join(root, `test/golden/${name}/kernel.golden`), 'utf8');
    expect(objectsOf(golden('v1'))).toEqual([golden('v1beta1'), golden('kep')].map((object) => JSON.parse(object)));
    // Every JSON example is compared with a golden file.
    expect(text.match(/^```json$/gm)).toHaveLength(blocks.length);
  });

  it('names every path of the layouts', () => {
    const claim = { namespace: '<namespace>', name: '<claim>', uid: '<uid>' };
    const place = { claim, request: '<request>', driver: '<driver>', podUid: '<pod uid>' };
    for (const layout of Object.values(layouts)) {
      const paths = [
        ...layout.containerPaths(place),
        ...layout.containerPaths({ ...place, podClaimName: '<pod claim>' }),
      ];
      for (const path of paths) expect(text).toContain(`\`${path}\``);
      const dirs = { dataDir: '', attributesDir: '/var/run/dra-device-attributes', downwardApiDir: '/etc/dra' };
      const { base, parts } = layout.hostFile(dirs, place);
      expect(text).toContain(
        layout.name === 'kep' ? '`metadata-kep.json`' : `\`${[base, ...parts].join('/').replace(/^\/dra-/, 'dra-')}\``,
      );
    }
  });

  it('explains every field of the schema', () => {
    const fields = new Set<string>();
    const walk = (value: unknown) => {
      if (typeof value !== 'object' || value === null) return;
      if ('properties' in value) for (const name of Object.keys(value.properties as object)) fields.add(name);
      for (const each of Object.values(value)) walk(each);
    };
    walk(JSON.parse(schemaText));
    expect(fields.size).toBeGreaterThan(30);
    const explained = new Set([...text.matchAll(/`([\w.[\]]+)`/g)].flatMap(([, name = '']) => name.split(/[.[\]]+/)));
    expect([...fields].filter((name) => !explained.has(name))).toEqual([]);
  });

  it('has an example of a reader that runs', async () => {
    using bench = new Bench();
    const metadata = bench.start();
    const kernel = samples.kernel as NonNullable<typeof samples.kernel>;
    await metadata.prepare(recordOf(kernel), new Map());
    await metadata.update(claim, 'vf', documentOf(kernel).devices);
    const [, example = ''] = /```ts\n([\s\S]*?)```/.exec(text) ?? [];
    const script = join(bench.path, 'example.mts');
    const program = example
      .replace("'netdra/metadata'", JSON.stringify(join(root, 'src/framework/metadata/index.ts')))
      .replaceAll('(query)', `(query, { root: ${JSON.stringify(bench.enter(claim.uid))} })`)
      // It would go on for as long as there are changes.
      .replace(/(\n {2}console\.log\(files[^\n]*)/, '$1\n  break;');
    writeFileSync(script, program);
    const { status, stdout, stderr } = spawnSync(process.execPath, [script], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toBe("0000-3b-02-1 0000:3b:02.1 net1\n1 [ '192.0.2.7/24', '2001:db8::7/64' ]\n");
  });
});

describe('docs/metadata.schema.json', () => {
  const goldenFiles = [...layoutNames, 'v1beta1', 'v1alpha1'].flatMap((dir) =>
    readdirSync(join(root, 'test/golden', dir)).map((file) => join('test/golden', dir, file)),
  );
  // Exact in the file and in the schema; the validator here takes numbers only as far as JavaScript has them.
  const isExact = (file: string) => !file.endsWith('kinds.golden');

  it.each(goldenFiles.filter(isExact))('describes %s', (file) => {
    const objects = objectsOf(readFileSync(join(root, file), 'utf8'));
    expect(objects).toHaveLength(file.includes('/v1/') ? 2 : 1);
    for (const object of objects) expect(schema.safeParse(object)).toMatchObject({ success: true });
  });

  it('describes every generated document in every layout', () => {
    const safe = (document: MetadataDocument) => !/\d{16}/.test(formatGoJson(document));
    fc.assert(
      fc.property(arbitraries.document.filter(safe), (document) => {
        const { claim, request, devices, podClaimName } = document;
        const published = devices.map(({ pool, name, attributes = {} }) => ({ pool, name, attributes }));
        const content = {
          claim,
          request,
          driver: 'd.example',
          published,
          document,
          readySince: '2026-03-01T12:00:00Z',
          ...(podClaimName === undefined ? {} : { podClaimName }),
        };
        for (const layout of Object.values(layouts)) {
          for (const object of objectsOf(layout.encode(content) ?? '')) {
            const { success, error } = schema.safeParse(object);
            expect(success, JSON.stringify([object, error?.issues])).toBe(true);
          }
        }
      }),
    );
  });

  const kernel = samples.kernel as NonNullable<typeof samples.kernel>;
  const encoded: Record<LayoutName, string> = {
    v1: encodeObject(documentOf(kernel), 'v1beta1'),
    kep: layouts.kep.encode(kernel.content) ?? '',
    'attributes-json': layouts['attributes-json'].encode(kernel.content) ?? '',
    'downward-api': layouts['downward-api'].encode(kernel.content) ?? '',
  };
  it.each([
    ['v1', '"generation": 1', '"generation": 0'],
    ['v1', '"generation": 1', '"generation": "1"'],
    ['v1', '"uid"', '"id"'],
    ['v1', 'v1beta1', 'v1'],
    ['v1', '"DeviceMetadata"', '"Other"'],
    ['v1', '"int": 9000', '"int": 9000.5'],
    ['v1', '"int": 9000', '"int": 9000, "string": "x"'],
    ['v1', '"int": 9000', '"integer": 9000'],
    ['v1', '"mtu"', '"m t u"'],
    ['v1', '"ips"', '"addrs"'],
    ['v1', '"192.0.2.7/24"', '"192.0.2.7"'],
    ['v1', '"name": "vf"', '"name": "a/b/c"'],
    ['kep', '"hardwareAddress": "02', '"hwAddress": "02'],
    ['attributes-json', '"1500"', '1500'],
    ['attributes-json', '"claimName"', '"name"'],
    ['downward-api', '"status": "True"', '"status": "Maybe"'],
    ['downward-api', '"mtu": 9000', '"mtu": null'],
    ['downward-api', '2026-03-01T12:00:00Z', 'yesterday'],
    ['downward-api', '"addresses"', '"ips"'],
  ] as const)('rejects the layout %s with %s as %s', (layout, before, after) => {
    expect(schema.safeParse(JSON.parse(encoded[layout])).success).toBe(true);
    expect(encoded[layout]).toContain(before);
    expect(schema.safeParse(JSON.parse(encoded[layout].replace(before, after))).success).toBe(false);
  });
});
