import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { encodeObject } from '../../../../../src/framework/metadata/document/codec.ts';
import { layoutNames, layouts, metadataVersions } from '../../../../../src/framework/metadata/index.ts';
import { documentOf, golden, place, samples } from '../samples.ts';

const dirs = { dataDir: '/data', attributesDir: '/attributes', downwardApiDir: '/pods' };
const names = Object.keys(samples);

/** A sample that is there. */
function sample(name: string) {
  const found = samples[name];
  if (found === undefined) throw new Error(`no sample ${name}`);
  return found;
}

describe.each(layoutNames)('the layout %s', (name) => {
  it.each(names)('writes the golden file for %s', (sampleName) => {
    const text = layouts[name].encode(sample(sampleName).content) ?? '';
    expect(text).toBe(golden(`${name}/${sampleName}.golden`, text));
  });

  it('has a test for each golden file', () => {
    const files = readdirSync(new URL(`../../../../golden/${name}`, import.meta.url));
    expect(files.sort()).toEqual(names.map((sampleName) => `${sampleName}.golden`).sort());
  });

  it('writes its file at the documented path', () => {
    const at = place(sample('dpdk'));
    const { base, parts } = layouts[name].hostFile(dirs, at);
    const plain = place(sample('kernel'));
    const seen = {
      host: [base, ...parts].join('/'),
      container: layouts[name].containerPaths(plain),
      template: layouts[name].containerPaths(at),
      emptyAnnotation: layouts[name].containerPaths(place(sample('identity'))),
    };
    const text = `${JSON.stringify(seen, null, 2)}\n`;
    expect(text).toBe(golden(`paths/${name}.golden`, text));
  });
});

describe.each(metadataVersions)('the version %s', (version) => {
  it.each(names)('writes the golden file for %s', (sampleName) => {
    const text = encodeObject(documentOf(sample(sampleName)), version);
    expect(text).toBe(golden(`${version}/${sampleName}.golden`, text));
  });
});

describe('the layout attributes-json', () => {
  it('is encoded from the slice alone, without a document', () => {
    const { document: _, readySince: __, ...content } = sample('kernel').content;
    expect(layouts['attributes-json'].encode(content)).toBe(
      layouts['attributes-json'].encode(sample('kernel').content),
    );
    for (const name of ['v1', 'kep', 'downward-api'] as const) expect(layouts[name].encode(content)).toBeUndefined();
  });

  it('has an empty map for a device without attributes, and one entry for each device of a request', () => {
    const entries = (name: string) =>
      JSON.parse(layouts['attributes-json'].encode(sample(name).content) ?? '').claims[0].requests;
    expect(entries('identity')).toEqual([{ requestName: 'any', attributes: {} }]);
    expect(entries('two')).toEqual([
      { requestName: 'vfs', attributes: { vfIndex: '1' } },
      { requestName: 'vfs', attributes: { vfIndex: '2' } },
    ]);
  });
});

describe('the layout downward-api', () => {
  it('requires a pod', () => {
    const { podUid: _, ...at } = place(sample('kernel'));
    expect(() => layouts['downward-api'].hostFile(dirs, at)).toThrow(
      'claim default/fast-net is not reserved for any pod',
    );
  });

  it('prefers the unqualified attribute if two would have the same name', () => {
    const [device] = JSON.parse(layouts['downward-api'].encode(sample('kinds').content) ?? '').requests[0].devices;
    expect(device.driverProvidedData.data).toMatchObject({ own: 'unqualified', shared: 1 });
    expect(device.bestEffortData.attributes).toMatchObject({ own: 'unqualified', 'a.example/own': 'qualified' });
  });
});
