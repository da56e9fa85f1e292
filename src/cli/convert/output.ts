import { isDeepStrictEqual } from 'node:util';
import type * as z from 'zod';
import { classConfigSchema, type LabelSelector } from '../../driver/api/class-config.ts';
import { findContradictions } from '../../driver/api/config-rules.ts';
import { networkDevicePolicySchema } from '../../driver/api/policy-object.ts';
import { checkSchema } from '../../driver/api/schema-faults.ts';
import { kubernetesName, vfConfigSchema } from '../../driver/api/vf-config.ts';
import type { VfConfig } from '../../driver/model/index.ts';
import { type Estate, type Network, type OutputObject, opaqueOf, type RuleForNodes } from './estate.ts';
import { selectResource } from './expressions.ts';
import { mergedConfig, noteClosed } from './networks.ts';
import type { ConversionReport, InputObject } from './report.ts';
import { covers, haveSamePf, mayOverlap } from './rule-overlap.ts';

const apiVersion = 'netdra.dev/v1alpha1';
/** Returns whether the dialect `devicePlugin` accepts a resource name. */
const isResourceName = (name: string) => /^[a-z0-9.-]+\/[A-Za-z0-9_-]+$/.test(name);
const toName = (text: string) => text.toLowerCase().replaceAll(/[^a-z0-9.-]/g, '-');

/**
 * Builds netdra's objects. Reports and leaves out objects that netdra's own checks refuse, so that the output can be applied.
 */
export function assemble(estate: Estate, driver: string): OutputObject[] {
  const { report, networks, resources, objects } = estate;
  const all = [
    ...policies(estate),
    ...[...resources.values()].map(({ of, name, config, terms }) => {
      const dialects = isResourceName(name) ? { dialects: { devicePlugin: { resourceName: name } } } : {};
      const expression = selectResource(driver, name, terms);
      const className = toName(name.replace('/', '-'));
      return { of, value: deviceClass(driver, className, expression, { ...config, ...dialects }, name) };
    }),
    ...networks.flatMap((network) => networkObjects(estate, driver, network)),
    ...objects,
  ];
  const names = new Map<string, InputObject>();
  return all.filter(({ of, value }) => {
    const { name, namespace = '' } = value.metadata as { name: string; namespace?: string };
    const key = `${value.kind} ${namespace}/${name}`;
    const other = names.get(key);
    if (other !== undefined) {
      report.lost(of, [], `${key} was already made from ${other.kind} ${other.name}`, 'convert them one by one');
      return false;
    }
    names.set(key, of);
    return isValid(report, of, value);
  });
}

/** Merges rules for the same nodes into one policy, since a node accepts only one policy. */
function policies({ rules, report }: Estate): OutputObject[] {
  const groups = [...Map.groupBy(rules, ({ nodeSelector }) => JSON.stringify(nodeSelector)).values()];
  for (const [index, group] of groups.entries()) {
    for (const other of groups.slice(0, index)) reportSharedNodes(report, group, other);
  }
  return groups.map((group) => {
    const [{ of, nodeSelector }] = group as [RuleForNodes];
    const inOrder = group.toSorted((one, other) => one.priority - other.priority);
    for (const [index, each] of inOrder.entries()) {
      reportHidden(report, each, inOrder.slice(index + 1));
      reportIdle(report, each, inOrder.slice(0, index));
    }
    const pfs = inOrder.map(({ rule }) => rule);
    const unique = pfs.filter((rule, index) => !pfs.slice(0, index).some((other) => isDeepStrictEqual(other, rule)));
    const isFirst = groups.findIndex(([each]) => each?.of.name === of.name) === groups.indexOf(group);
    const [node = ''] = nodeSelector.matchExpressions?.[0]?.values ?? [];
    const name = toName(isFirst ? of.name : `${of.name}-${node}`);
    return {
      of,
      value: { apiVersion, kind: 'NetworkDevicePolicy', metadata: { name }, spec: { nodeSelector, pfs: unique } },
    };
  });
}

function reportSharedNodes(
  report: ConversionReport,
  group: readonly RuleForNodes[],
  other: readonly RuleForNodes[],
): void {
  const [[one], [two]] = [group, other];
  if (one === undefined || two === undefined || areDisjoint(one.nodeSelector, two.nodeSelector)) return;
  const why = `may select nodes that ${two.of.kind} ${two.of.name} selects too, but a node accepts only one policy`;
  report.lost(
    one.of,
    ['spec', 'nodeSelector'],
    why,
    'select by labels of which each node has only one, or convert SriovNetworkNodeStates',
  );
}

function areDisjoint(one: LabelSelector, other: LabelSelector): boolean {
  const [a, b] = [valuesOf(one), valuesOf(other)];
  return [...a].some(([key, values]) => b.get(key)?.isDisjointFrom(values) === true);
}

function valuesOf({ matchLabels = {}, matchExpressions = [] }: LabelSelector): Map<string, Set<string>> {
  const fixed = matchExpressions.filter(({ operator }) => operator === 'In');
  return new Map([
    ...Object.entries(matchLabels).map(([key, value]): [string, Set<string>] => [key, new Set([value])]),
    ...fixed.map(({ key, values = [] }): [string, Set<string>] => [key, new Set(values)]),
  ]);
}

/**
 * Reports a rule that would take VFs of a later rule. This happens since a policy cannot select by all fields by which the
 * class selects.
 */
function reportHidden(report: ConversionReport, one: RuleForNodes, later: readonly RuleForNodes[]): void {
  if (one.narrowedBy === undefined) return;
  const hidden = later.find(({ rule }) => rule.resourceName !== one.rule.resourceName && mayOverlap(one.rule, rule));
  if (hidden === undefined) return;
  const why = `a policy cannot select by ${one.narrowedBy}, so ${one.rule.resourceName} would take VFs of ${hidden.rule.resourceName}`;
  report.lost(one.of, ['data'], why, 'name different PFs (pfNames, rootDevices) or ranges of VFs for them');
}

/**
 * Reports a rule without effect, since an earlier rule covers its VFs, and a number of VFs without effect, since an earlier
 * rule sets it for the PF.
 */
function reportIdle(report: ConversionReport, { of, rule }: RuleForNodes, earlier: readonly RuleForNodes[]): void {
  const others = earlier.filter((each) => !isDeepStrictEqual(each.rule, rule));
  const first = others.find((each) => each.narrowedBy === undefined && covers(each.rule, rule));
  if (first !== undefined) {
    const why = `has no effect: ${first.of.kind} ${first.of.name} comes first for the same VFs`;
    if (isDeepStrictEqual(settingsOf(first.rule), settingsOf(rule))) {
      report.note(of, [], `${why}, with the same settings`);
      return;
    }
    report.lost(of, [], why, 'name different PFs or ranges of VFs in them (pfNames: ["ens1f0#0-3"]), or leave one out');
    return;
  }
  const { numVfs } = rule;
  const other = others.find((each) => each.rule.numVfs !== undefined && haveSamePf(each.rule, rule));
  if (numVfs === undefined || other === undefined || other.rule.numVfs === numVfs) return;
  const why = `${other.of.kind} ${other.of.name} sets ${other.rule.numVfs} for the same PF`;
  report.lost(of, ['spec', 'numVfs'], why, 'give both the same number');
}

/** Returns the settings of a rule, without the fields that select VFs. */
function settingsOf({ select: _, vfs: _vfs, vfDriver: _driver, ...settings }: RuleForNodes['rule']) {
  return settings;
}

function networkObjects({ resources, report }: Estate, driver: string, network: Network): OutputObject[] {
  const { of, name, namespace, resourceName, config: own } = network;
  const resource = resources.get(resourceName);
  if (resource === undefined) report.note(of, [], `no object of the input says which devices are ${resourceName}`);
  const dialects = isResourceName(resourceName) ? { dialects: { devicePlugin: { resourceName } } } : {};
  const config = { ...mergedConfig(resource?.config ?? {}, own), ...dialects };
  noteClosed(report, of, config);
  const className = toName(`${namespace}-${name}`);
  const expression = selectResource(driver, resourceName, resource?.terms);
  const limits = { allowedNamespaces: { names: [namespace] } };
  const exactly = { deviceClassName: className };
  return [
    { of, value: deviceClass(driver, className, expression, { ...config, limits }) },
    {
      of,
      value: {
        apiVersion: 'resource.k8s.io/v1',
        kind: 'ResourceClaimTemplate',
        metadata: { name, namespace },
        spec: { spec: { devices: { requests: [{ name: 'vf', exactly }] } } },
      },
    },
  ];
}

function deviceClass(driver: string, name: string, expression: string, config: object, extendedResourceName?: string) {
  return {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name },
    spec: {
      ...(extendedResourceName !== undefined && { extendedResourceName }),
      selectors: [{ cel: { expression } }],
      config: [opaqueOf(driver, config)],
    },
  };
}

function isValid(report: ConversionReport, of: InputObject, value: Record<string, unknown>): boolean {
  const { name } = value.metadata as { name: string };
  const faults = kubernetesName.safeParse(name).success
    ? faultsOf(value)
    : [`${JSON.stringify(name)} cannot be the name of an object`];
  for (const fault of faults)
    report.lost(of, [], `${value.kind} ${name} would be refused: ${fault}`, 'correct the object');
  return faults.length === 0;
}

function faultsOf(value: Record<string, unknown>): string[] {
  const { kind, spec } = value;
  if (kind === 'NetworkDevicePolicy') return faultsBy(networkDevicePolicySchema, value);
  const devices = kind === 'ResourceClaimTemplate' ? Object(Object(spec).spec).devices : Object(spec).devices;
  const entries: unknown[] = kind === 'DeviceClass' ? (Object(spec).config ?? []) : (devices?.config ?? []);
  const schema = kind === 'DeviceClass' ? classConfigSchema : vfConfigSchema;
  return entries.flatMap((entry) => {
    const { parameters } = Object(Object(entry).opaque);
    // Configurations for other drivers stay.
    if (Object(parameters).kind !== 'VFConfig') return [];
    const faults = faultsBy<unknown>(schema, parameters);
    return faults.length > 0 ? faults : findContradictions(parameters as VfConfig);
  });
}

function faultsBy<T>(schema: z.ZodType<T>, value: unknown): string[] {
  const { faults = [] } = checkSchema(schema, value, 'the schema', 'object');
  return faults.map(({ field, message }) => `${field}: ${message}`);
}
