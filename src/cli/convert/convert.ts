import { createReadStream } from 'node:fs';
import * as yaml from 'js-yaml';
import { yamlPlaces } from '../../driver/api/yaml-places.ts';
import { explain } from '../../lib/errors.ts';
import { findYamlProblem } from '../../lib/json-depth.ts';
import { isNear } from '../strict-checks.ts';
import { convertDevicePlugin, isDevicePluginConfig } from './device-plugin.ts';
import { DraConverter } from './dra-objects.ts';
import { Estate, type OutputObject } from './estate.ts';
import { convertDefinition, convertSriovNetwork } from './networks.ts';
import { convertNodePolicy, convertNodeStates, type OperatorOptions } from './operator.ts';
import { assemble } from './output.ts';
import { type ConversionRemark, ConversionReport, type InputObject, nameOf } from './report.ts';
import { checkDeviceAttributes, convertResourcePolicy } from './resource-policy.ts';

export interface ConvertOptions extends Partial<OperatorOptions> {
  driverName: string;
  /**
   * Limit for the total size of all files, bytes. Default: 32 MiB, the size of the objects in a cluster of some thousand nodes.
   */
  mostBytes?: number;
}

export interface Conversion {
  /** The converted objects as YAML; empty if there are none. */
  yaml: string;
  /** Number of objects in `yaml`. */
  objects: number;
  remarks: ConversionRemark[];
  /** Whether all objects were converted completely. */
  isComplete: boolean;
}

const unsupported: Record<string, string> = {
  OVSNetwork: 'netdra does not program Open vSwitch: leave the network to Multus and ovs-cni',
  SriovNetworkPoolConfig:
    'it configures the operator: keep it, and before you remove the operator, make the settings of the nodes yourself',
};
/** Objects that need no counterpart. */
const withoutCounterpart = ['SriovOperatorConfig'];
/** Kinds of objects that are converted or reported, by API group. `isWhole`: the group has no other kinds. */
const knownKinds: Record<string, { kinds: readonly string[]; isWhole?: true }> = {
  'sriovnetwork.openshift.io': {
    kinds: [
      'SriovNetworkNodePolicy',
      'SriovNetworkNodeState',
      'SriovNetwork',
      'SriovIBNetwork',
      ...Object.keys(unsupported),
      ...withoutCounterpart,
    ],
    isWhole: true,
  },
  'sriovnetwork.k8snetworkplumbingwg.io': { kinds: ['SriovResourcePolicy', 'DeviceAttributes'], isWhole: true },
  'k8s.cni.cncf.io': { kinds: ['NetworkAttachmentDefinition'] },
  'resource.k8s.io': { kinds: ['DeviceClass', 'ResourceClaim', 'ResourceClaimTemplate'] },
};
const nothing = 'has no object of another SR-IOV stack';

/**
 * Converts objects of other SR-IOV stacks.
 * @param files paths; `-`: standard input
 */
export async function convertFiles(
  files: readonly string[],
  { driverName, resourcePrefix = 'openshift.io', takeOver = false, mostBytes = 32 * 1024 * 1024 }: ConvertOptions,
): Promise<Conversion> {
  const options = { driverName, resourcePrefix, takeOver };
  const report = new ConversionReport();
  const input: InputObject[] = [];
  const empty: InputObject[] = [];
  let left = mostBytes;
  for (const file of files) {
    const whole = wholeFile(file);
    try {
      const text = await readBounded(file, left);
      left -= Buffer.byteLength(text);
      const found = objectsIn(file, text);
      input.push(...found);
      if (!found.some(isForeign)) empty.push(whole);
    } catch (error) {
      report.lost(whole, [], `cannot be read: ${explain(error)}`, 'correct the file');
    }
  }
  const objects = convertObjects(input, report, options);
  if (objects.length === 0 && report.isComplete) {
    for (const file of files) report.lost(wholeFile(file), [], nothing, 'see docs/migration.md');
  } else {
    for (const file of empty) report.note(file, [], nothing);
  }
  const text = objects.map(formatObject).join('');
  return { yaml: text, objects: objects.length, remarks: report.remarks, isComplete: report.isComplete };
}

function wholeFile(file: string): InputObject {
  const placeOf = () => ({ line: 1, column: 1 });
  return { file, placeOf, at: [], kind: 'file', name: file, namespace: undefined, value: {} };
}

/** Returns whether an object belongs to another SR-IOV stack, or has a kind that may be misspelled. */
function isForeign(of: InputObject): boolean {
  const isKnown = Object.values(knownKinds).some(({ kinds }) => kinds.includes(of.kind));
  return isKnown || isDevicePluginConfig(of) || whyUnknown(of) !== undefined;
}

/** Returns the remedy for an object whose kind is probably a mistake; `undefined` for any other object. */
function whyUnknown({ kind, value: { apiVersion } }: InputObject): string | undefined {
  const { kinds, isWhole } = knownKinds[String(apiVersion).split('/')[0] ?? ''] ?? { kinds: [] };
  if (kinds.includes(kind)) return undefined;
  const meant = kinds.find((each) => isNear(kind, each));
  if (meant !== undefined) return `is ${meant} meant?`;
  return isWhole ? 'leave it out, or correct its kind' : undefined;
}

async function readBounded(file: string, most: number): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of file === '-' ? process.stdin : createReadStream(file)) {
    size += part.length;
    if (size > most) throw new Error('the input is too large: convert it in parts');
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

function objectsIn(file: string, text: string): InputObject[] {
  const places = yamlPlaces(text, yaml);
  return yaml.loadAll(text).flatMap((document, index) => {
    const problem = findYamlProblem(document, text);
    if (problem !== undefined) throw new Error(`document ${index + 1} ${problem}`);
    const placeOf = places[index] ?? (() => ({ line: 1, column: 1 }));
    const { kind, items } = Object(document);
    // A client in Go writes an empty list as `items: null`.
    const isEmptyList = items === null && String(kind).endsWith('List');
    const objects: [unknown, PropertyKey[]][] = Array.isArray(items)
      ? items.map((item, at) => [item, ['items', at]])
      : isEmptyList
        ? []
        : [[document, []]];
    return objects.flatMap(([value, at]) => {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return [];
      const fields = { ...value } as Record<string, unknown>;
      const { name = '', namespace } = Object(fields.metadata);
      const identity = { kind: `${fields.kind}`, name: `${name}`, namespace: namespace && `${namespace}` };
      return [{ file, placeOf, at, ...identity, value: fields }];
    });
  });
}

function convertObjects(
  input: readonly InputObject[],
  report: ConversionReport,
  options: OperatorOptions & { driverName: string },
): OutputObject[] {
  const estate = new Estate(report);
  const { driverName, resourcePrefix } = options;
  const of = (...kinds: string[]) => input.filter(({ kind }) => kinds.includes(kind));
  const states = of('SriovNetworkNodeState');
  for (const each of of('SriovNetworkNodePolicy')) convertNodePolicy(estate, each, options, states.length > 0);
  convertNodeStates(estate, states, options);
  for (const each of of('ConfigMap').filter(isDevicePluginConfig)) convertDevicePlugin(estate, each, driverName);
  const networks = of('SriovNetwork', 'SriovIBNetwork');
  for (const each of networks) convertSriovNetwork(estate, each, resourcePrefix);
  // The operator creates a NetworkAttachmentDefinition for each of its networks: such a definition is not converted again.
  const made = new Set(
    networks.map(({ value, name, namespace }) => `${Object(value.spec).networkNamespace ?? namespace}/${name}`),
  );
  const definitions = of('NetworkAttachmentDefinition').filter(
    ({ name, namespace }) => !made.has(`${namespace}/${name}`),
  );
  for (const each of definitions) convertDefinition(estate, each);
  const attributes = of('DeviceAttributes');
  for (const each of attributes) checkDeviceAttributes(estate, each);
  for (const each of of('SriovResourcePolicy')) convertResourcePolicy(estate, each, attributes);
  const dra = new DraConverter(estate, driverName);
  for (const each of of('DeviceClass')) dra.convertClass(each);
  for (const each of of('ResourceClaim', 'ResourceClaimTemplate')) dra.convertClaim(each);
  for (const each of input) {
    const why = unsupported[each.kind];
    if (why !== undefined) report.lost(each, [], `${each.kind} has no counterpart`, why);
    if (withoutCounterpart.includes(each.kind)) report.note(each, [], 'needs no counterpart');
    const todo = whyUnknown(each);
    if (todo !== undefined) report.lost(each, [], `${each.kind} is no kind that netdra convert knows`, todo);
  }
  return assemble(estate, driverName);
}

function formatObject({ of, value }: OutputObject): string {
  const from = of.file === '' ? '' : `# From ${nameOf(of)}\n`;
  return `---\n${from}${yaml.dump(value, { lineWidth: -1, noRefs: true })}`;
}
