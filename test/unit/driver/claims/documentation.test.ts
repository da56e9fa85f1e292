import { readFileSync } from 'node:fs';
import { loadAllYaml } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { vfConfigSchema } from '../../../../src/driver/api/vf-config.ts';
import { closedFields } from '../../../../src/driver/model/index.ts';

const page = (name: string) => readFileSync(new URL(`../../../../${name}`, import.meta.url), 'utf8');
const text = page('docs/vfconfig.md');

interface WithConfig {
  kind: string;
  spec?: { config?: { opaque: { parameters: object } }[]; devices?: { config?: { opaque: { parameters: object } }[] } };
}

/** Every VFConfig of a page: by itself, or in the config of a claim or a class. */
function examplesIn(page: string): object[] {
  return [...page.matchAll(/^```(yaml|json)\n([\s\S]*?)^```/gm)].flatMap(([, , block = '']) =>
    (loadAllYaml(block) as WithConfig[]).flatMap((object) => {
      if (object.kind === 'VFConfig') return [object];
      const entries = object.spec?.devices?.config ?? object.spec?.config ?? [];
      return entries.map(({ opaque }) => opaque.parameters);
    }),
  );
}
const examples = examplesIn(text);
const ofReadme = examplesIn(page('README.md'));
/** Rows of the table of fields: name, type, who, meaning. */
const rows = [...text.matchAll(/^\| `([\w.]+)` \| (.*?) \| (.*?) \| (.*?) \|$/gm)].map(([, name = '', , who = '']) => ({
  name,
  who,
}));

describe('docs/vfconfig.md', () => {
  it('has an example for every alternative of a field', () => {
    expect(examples.length).toBeGreaterThanOrEqual(8);
    expect(ofReadme).toHaveLength(1);
    const fields = new Set(examples.flatMap((example) => Object.keys(example)));
    const { apiVersion: _apiVersion, kind: _kind, ...known } = vfConfigSchema.shape;
    expect(Object.keys(known).filter((field) => !fields.has(field))).toEqual([]);
  });

  it('describes every field, and no other', () => {
    const {
      apiVersion: _apiVersion,
      kind: _kind,
      vf,
      bond,
      networkAttachmentDefinition,
      addressPool,
      ...plain
    } = vfConfigSchema.shape;
    const nested = (name: string, shape: object) => Object.keys(shape).map((field) => `${name}.${field}`);
    const fields = [
      ...Object.keys(plain),
      ...nested('vf', vf.unwrap().shape),
      ...nested('bond', bond.unwrap().shape),
      ...nested('addressPool', addressPool.unwrap().shape),
      ...nested('networkAttachmentDefinition', networkAttachmentDefinition.unwrap().shape),
    ];
    expect(rows.map(({ name }) => name).sort()).toEqual(fields.sort());
  });

  it('says for each field whether claims may set it', () => {
    const named = rows.filter(({ who }) => who.includes('class')).map(({ name }) => name);
    const closed = closedFields.map((field) => field.replace(/^networkAttachmentDefinition$/, '$&.name'));
    expect(named.sort()).toEqual(closed.sort());
  });
});
