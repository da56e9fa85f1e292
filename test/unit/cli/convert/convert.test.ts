import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type ConvertOptions, convertFiles } from '../../../../src/cli/convert/convert.ts';
import { formatRemarks } from '../../../../src/cli/convert/report.ts';
import { validateFiles } from '../../../../src/cli/validate.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { findDocumentProblems } from '../../docs/check-document.ts';
import { plainTerminal } from '../plain-terminal.ts';

const golden = fileURLToPath(new URL('../../../golden/convert/', import.meta.url));
const options: ConvertOptions = { driverName: testDriver };
const estates = readdirSync(golden)
  .filter((name) => name.endsWith('.in.yaml'))
  .map((name) => name.replace('.in.yaml', ''));

async function convertText(text: string, more: Partial<ConvertOptions> = {}) {
  using dir = tempDir();
  const path = join(dir.path, 'in.yaml');
  writeFileSync(path, text);
  const conversion = await convertFiles([path], { ...options, ...more });
  return { ...conversion, remarks: formatRemarks(plainTerminal, conversion.remarks).replaceAll(path, 'in.yaml') };
}

const policy = (spec: string) =>
  `apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetworkNodePolicy\nmetadata: { name: p, namespace: sriov }\nspec: ${spec}\n`;

describe('netdra convert', () => {
  it('has ten estates to convert', () => {
    expect(estates).toHaveLength(10);
  });

  describe.each(estates)('of the estate %s', (name) => {
    const input = join(golden, `${name}.in.yaml`);

    it('writes the objects and remarks of the golden files', async () => {
      const { yaml, remarks } = await convertFiles([input], options);
      await expect(yaml).toMatchFileSnapshot(join(golden, `${name}.out.yaml`));
      const text = formatRemarks(plainTerminal, remarks).replaceAll(golden, '');
      await expect(text).toMatchFileSnapshot(join(golden, `${name}.remarks.txt`));
    });

    it('writes objects that netdra validate and the schemas of the API server accept', async () => {
      const output = join(golden, `${name}.out.yaml`);
      const { checked, faults } = await validateFiles([output], { driverName: testDriver, openClaimFields: [] });
      expect(faults).toEqual([]);
      expect(checked).toBeGreaterThan(0);
      expect(findDocumentProblems('yaml', readFileSync(output, 'utf8'))).toEqual([]);
    });
  });

  it('names each field that it does not know', async () => {
    const { isComplete, remarks } = await convertText(policy('{ resourceName: nic, numQueues: 4, nicSelector: {} }'));
    expect(isComplete).toBe(false);
    expect(remarks).toContain('in.yaml:4:28: SriovNetworkNodePolicy sriov/p: spec.numQueues: not converted:');
  });

  it('lets netdra create the VFs with --take-over, except for PFs that somebody else manages', async () => {
    const own = await convertText(policy('{ resourceName: nic, numVfs: 4, nicSelector: { pfNames: [a] } }'), {
      takeOver: true,
    });
    expect(own.yaml).toContain('numVfs: 4');
    const external = policy('{ resourceName: nic, numVfs: 4, externallyManaged: true, nicSelector: { pfNames: [a] } }');
    expect((await convertText(external, { takeOver: true })).yaml).not.toContain('numVfs');
  });

  it('leaves out objects that the API server would refuse', async () => {
    const { yaml, remarks } = await convertText(policy('{ resourceName: nic, nicSelector: { vendor: INTEL } }'));
    expect(yaml).not.toContain('NetworkDevicePolicy');
    expect(remarks).toContain('would be refused: spec.pfs.0.select.vendor.0: four lower-case hexadecimal digits');
  });

  it('writes no class that would select the devices of others', async () => {
    const expression = `device.attributes["dra.net"].alias == "x"`;
    const text = `{ apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: { name: c }, spec: { selectors: [{ cel: { expression: '${expression}' } }] } }`;
    const { yaml, remarks } = await convertText(text);
    expect(yaml).toBe('');
    expect(remarks).toContain('netdra has no equivalent of the attribute alias');
  });

  it('reports input without any object of another stack', async () => {
    const { isComplete, remarks } = await convertText('{ apiVersion: v1, kind: Service, metadata: { name: s } }');
    expect(isComplete).toBe(false);
    expect(remarks).toContain('has no object of another SR-IOV stack');
  });

  it.each([
    ['aliases that stand for billions of values', bomb(), 'values when its aliases are expanded'],
    [
      'JSON that is nested too deep',
      policy(`{ resourceName: nic, nicSelector: ${'['.repeat(80)}${']'.repeat(80)} }`),
      'levels deep',
    ],
    ['text that is no YAML', 'a: [', 'cannot be read'],
  ])('refuses %s', async (_, text, reason) => {
    const { yaml, isComplete, remarks } = await convertText(text);
    expect({ yaml, isComplete }).toEqual({ yaml: '', isComplete: false });
    expect(remarks).toContain(reason);
  });

  it('refuses input above its limit', async () => {
    const { yaml, remarks } = await convertText(policy('{ resourceName: nic, nicSelector: {} }'), { mostBytes: 100 });
    expect(yaml).toBe('');
    expect(remarks).toContain('the input is too large: convert it in parts');
  });

  it('refuses JSON in the text of a field that is nested too deep', async () => {
    const config = `{"resourceList":${'['.repeat(9_000)}${']'.repeat(9_000)}}`;
    const text = `{ apiVersion: v1, kind: ConfigMap, metadata: { name: c }, data: { config.json: '${config}' } }`;
    expect((await convertText(text)).remarks).toContain('is nested more than 64 levels deep');
  });

  it('escapes control characters of names', async () => {
    const text = policy('{ resourceName: nic }').replace('name: p', String.raw`name: "p\u001b[31m\n---\nkind: Secret"`);
    const { yaml, remarks } = await convertText(text);
    expect(`${yaml}${remarks}`).not.toContain(String.fromCharCode(27));
    expect(yaml).not.toMatch(/^kind: Secret/m);
  });
});

/** Thirty lines that stand for 10^30 values. */
function bomb(): string {
  const lines = Array.from({ length: 30 }, (_, level) => {
    return `a${level}: &a${level} [${Array.from({ length: 10 }, () => (level === 0 ? 'x' : `*a${level - 1}`)).join(', ')}]`;
  });
  return `kind: SriovNetwork\n${lines.join('\n')}\n`;
}
