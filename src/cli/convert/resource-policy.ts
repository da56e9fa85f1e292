import type { LabelSelector } from '../../driver/api/class-config.ts';
import type { Estate, PfRule } from './estate.ts';
import { FieldReader } from './field-reader.ts';
import type { InputObject } from './report.ts';
import { toLinkType } from './selectors.ts';

/**
 * Converts SriovResourcePolicies of dra-driver-sriov, with the resource names from DeviceAttributes objects.
 * Source: dra-driver-sriov, pkg/api/sriovdra/v1alpha1/api.go.
 */
export function convertResourcePolicy(estate: Estate, of: InputObject, attributes: readonly InputObject[]): void {
  const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
  const nodeSelector = nodeSelectorOf(spec);
  for (const config of spec.objects('configs')) {
    const resourceName = resourceNameOf(config, attributes);
    if (!config.isSet('resourceFilters'))
      config.lose(
        'resourceFilters',
        'is empty, but a rule of netdra must select PFs',
        'add a filter with pfNames or vendors',
      );
    for (const filter of config.objects('resourceFilters')) {
      const rule = ruleOf(filter);
      if (rule === undefined) continue;
      estate.rules.push({ of, nodeSelector, priority: 0, rule: { ...rule, ...(resourceName && { resourceName }) } });
    }
    config.end();
  }
  spec.end();
}

/** Reports attributes that a DeviceAttributes object adds. Except for the resource name, netdra has no equivalent. */
export function checkDeviceAttributes(estate: Estate, of: InputObject): void {
  const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
  const attributes = spec.object('attributes');
  for (const name of attributes.names()) {
    if (/(^|\/)resourceName$/.test(name)) attributes.skip(name);
    else attributes.lose(name, 'a policy of netdra adds no attributes', 'select by resourceName instead');
  }
  spec.end();
}

/** Returns the resource name from the DeviceAttributes object that an entry of `configs` selects. */
function resourceNameOf(config: FieldReader, all: readonly InputObject[]): string | undefined {
  const selector = config.object('deviceAttributesSelector');
  const labels = Object.entries(selector.labels('matchLabels'));
  selector.end();
  if (labels.length === 0) return undefined;
  const [found, ...others] = all.filter(({ value }) => {
    const own = Object(Object(value.metadata).labels);
    return labels.every(([key, text]) => own[key] === text);
  });
  if (found === undefined || others.length > 0) {
    const wanted = `the labels ${labels.map((each) => each.join('=')).join(', ')}`;
    const names = [found, ...others].map((each) => each?.name).join(', ');
    const why =
      found === undefined
        ? `no DeviceAttributes of the input has ${wanted}`
        : `DeviceAttributes ${names} have ${wanted}`;
    config.lose('deviceAttributesSelector', why, 'select exactly one DeviceAttributes, and add it to the input');
    return undefined;
  }
  const attributes = Object.entries(Object(Object(found.value.spec).attributes));
  const [, attribute] = attributes.find(([name]) => /(^|\/)resourceName$/.test(name)) ?? [];
  return Object(attribute).string;
}

/** Converts a node selector with a single term: a label selector has no alternatives. */
function nodeSelectorOf(spec: FieldReader): LabelSelector {
  const terms = spec.object('nodeSelector').objects('nodeSelectorTerms');
  const [term, ...others] = terms;
  if (others.length > 0) {
    spec.lose('nodeSelector', 'has several terms, and a policy of netdra has one', 'write a policy for each term');
  }
  if (term === undefined) return {};
  const expressions = term.objects('matchExpressions').map((each) => {
    const [key, operator, values] = [each.text('key') ?? '', each.text('operator') ?? '', each.texts('values')];
    if (operator === 'Gt' || operator === 'Lt')
      each.lose('operator', `${operator} compares no labels`, 'label the nodes');
    each.end();
    return { key, operator: operator as 'In', ...(values && { values }) };
  });
  term.loseIfSet('matchFields', 'a label selector has no fields', 'use the label kubernetes.io/hostname');
  term.end();
  return expressions.length === 0 ? {} : { matchExpressions: expressions };
}

function ruleOf(filter: FieldReader): PfRule | undefined {
  const [vendor, name, pciAddress] = [filter.texts('vendors'), filter.texts('pfNames'), filter.texts('pfPciAddresses')];
  const [linkType, vfDriver] = [toLinkType(filter, 'linkType'), filter.texts('drivers')];
  const isNarrower = filter.isSet('devices') || filter.isSet('pciAddresses');
  const todo = 'name the PFs by pfNames or pfPciAddresses, and VFs by vfs';
  const pfOnly = 'select.device of an inventory policy is the device ID of a PF, but this is the device ID of a VF';
  filter.loseIfSet('devices', pfOnly, todo);
  filter.loseIfSet('pciAddresses', 'a policy selects PFs, but these are addresses of VFs', todo);
  filter.end();
  if (isNarrower) return undefined;
  const select = {
    ...(name && { name }),
    ...(pciAddress && { pciAddress }),
    ...(vendor && { vendor }),
    ...(linkType && { linkType }),
  };
  return { select, ...(vfDriver && { vfDriver }) };
}
