import type { Estate, PfRule, ResourceConfig } from './estate.ts';
import { FieldReader } from './field-reader.ts';
import type { InputObject } from './report.ts';
import { selectNodes, splitByRange, toLinkType } from './selectors.ts';

export interface OperatorOptions {
  /** Prefix of the resource names, `RESOURCE_PREFIX` of the operator. Default: `openshift.io`. */
  resourcePrefix: string;
  /** Whether netdra creates the VFs instead of the operator. Default: false. */
  takeOver: boolean;
}

/** Maximum number of hostnames in one expression of a label selector. */
const mostNodes = 64;

/**
 * Converts SriovNetworkNodePolicies to rules for the nodes that they select.
 * Source: sriov-network-operator, api/v1/sriovnetworknodepolicy_types.go.
 * @param hasStates whether the input has SriovNetworkNodeStates, which the operator derives from these policies: the rules then
 * come from the states
 */
export function convertNodePolicy(estate: Estate, of: InputObject, options: OperatorOptions, hasStates: boolean): void {
  // The operator's default policy selects nothing.
  if (of.name === 'default') return;
  const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
  const resourceName = spec.text('resourceName');
  const nodeSelector = { matchLabels: spec.labels('nodeSelector') };
  const priority = spec.number('priority') ?? 99;
  const config = configOf(spec);
  const numVfs = numVfsOf(spec, options);
  if (spec.flag('needVhostNet')) config.vhost = true;
  if (spec.flag('excludeTopology'))
    spec.note(
      'excludeTopology',
      'netdra publishes the NUMA node, which matters only to claims that select or match by it',
    );
  const linkType = toLinkType(spec, 'linkType');
  spec.loseIfSet('bridge', 'netdra makes no bridges', 'keep the operator for it');
  const isVdpa = loseVdpa(spec);
  const nics = spec.object('nicSelector');
  spec.end();
  const rules = rulesFor(nics, { ...(linkType && { linkType }), ...(numVfs !== undefined && { numVfs }) });
  if (resourceName === undefined) {
    spec.lose('resourceName', 'is missing', 'correct the object');
    return;
  }
  const resource = `${options.resourcePrefix}/${resourceName}`;
  if (isVdpa) return;
  estate.addResource(of, resource, config);
  if (hasStates) return;
  for (const rule of rules)
    estate.rules.push({ of, nodeSelector, priority, rule: { ...rule, resourceName: resource } });
}

/** Reports settings for vDPA. @returns whether the VFs become vDPA devices */
function loseVdpa(spec: FieldReader): boolean {
  spec.loseIfSet('vdpaType', 'netdra has no vDPA devices', 'keep the operator for these VFs');
  return spec.isSet('vdpaType');
}

function configOf(spec: FieldReader): ResourceConfig {
  const config: ResourceConfig = {};
  const type = spec.text('deviceType') ?? 'netdevice';
  if (type === 'vfio-pci') config.driver = 'vfio-pci';
  else if (type === 'netdevice') config.driver = 'kernel';
  else spec.lose('deviceType', `${JSON.stringify(type)} is unknown`, 'use netdevice or vfio-pci');
  if (spec.flag('isRdma')) {
    if (config.driver === 'kernel') config.rdma = true;
    else spec.lose('isRdma', 'a VF on vfio-pci has no RDMA device', 'use deviceType netdevice');
  }
  const mtu = spec.number('mtu');
  if (mtu !== undefined && mtu > 0) {
    config.mtu = mtu;
    spec.note('mtu', 'becomes the MTU of the VFs in pods; the operator or the node goes on setting the MTU of the PF');
  }
  const mode = spec.text('eSwitchMode') ?? 'legacy';
  if (mode !== 'legacy')
    spec.note('eSwitchMode', `netdra leaves the mode of the card as it is: the operator or the node sets ${mode}`);
  return config;
}

function numVfsOf(spec: FieldReader, { takeOver }: OperatorOptions): number | undefined {
  const numVfs = spec.number('numVfs');
  const isExternal = spec.flag('externallyManaged') === true;
  if (numVfs === undefined || isExternal) return undefined;
  if (takeOver) return numVfs;
  spec.note('numVfs', 'the operator goes on creating the VFs; with --take-over netdra creates them');
  return undefined;
}

/** Converts a `nicSelector` to rules: one for each range of VFs in the PF names, and one for all names without a range. */
function rulesFor(nics: FieldReader, more: { linkType?: 'ethernet' | 'infiniband'; numVfs?: number }): PfRule[] {
  if (nics.isSet('netFilter')) {
    nics.lose(
      'netFilter',
      'netdra does not know the networks of a cloud provider',
      'select the PFs by name or address',
    );
    return [];
  }
  const { linkType, numVfs } = more;
  const [vendor, device] = [nics.texts('vendor'), nics.texts('deviceID')];
  const addresses = nics.texts('rootDevices');
  const names = nics.texts('pfNames') ?? [];
  nics.end();
  const select = {
    ...(vendor && { vendor }),
    ...(device && { device }),
    ...(addresses && { pciAddress: addresses }),
    ...(linkType && { linkType }),
  };
  return splitByRange(names).map(({ values, vfs }) => ({
    select: { ...(values.length > 0 && { name: values }), ...select },
    ...(vfs !== undefined && { vfs }),
    ...(numVfs !== undefined && { numVfs }),
  }));
}

/**
 * Converts SriovNetworkNodeStates. Nodes with the same interfaces share rules.
 * Source: sriov-network-operator, api/v1/sriovnetworknodestate_types.go.
 */
export function convertNodeStates(estate: Estate, states: readonly InputObject[], options: OperatorOptions): void {
  const nodes = states.map((of) => ({ of, rules: rulesOfState(estate, of, options) }));
  const alike = Map.groupBy(nodes, ({ rules }) => JSON.stringify(rules));
  for (const group of alike.values()) {
    for (let first = 0; first < group.length; first += mostNodes) {
      const some = group.slice(first, first + mostNodes);
      const [{ of, rules }] = some as [(typeof some)[0]];
      const values = some.map((each) => each.of.name).sort();
      if (rules.length === 0) continue;
      const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
      const nodeSelector = selectNodes(spec, 'interfaces', values);
      for (const rule of rules) estate.rules.push({ of, nodeSelector, priority: 0, rule });
    }
  }
}

function rulesOfState(estate: Estate, of: InputObject, options: OperatorOptions): PfRule[] {
  const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
  const rules = spec.objects('interfaces').flatMap((pf) => rulesOfInterface(estate, of, pf, options));
  spec.loseIfSet('bridges', 'netdra makes no bridges', 'keep the operator for them');
  const system = spec.object('system');
  if (system.text('rdmaMode') !== undefined)
    system.note('rdmaMode', 'netdra does not change the RDMA mode of the node');
  system.end();
  spec.end();
  return rules;
}

function rulesOfInterface(estate: Estate, of: InputObject, pf: FieldReader, options: OperatorOptions): PfRule[] {
  const address = pf.text('pciAddress');
  const numVfs = numVfsOf(pf, options);
  const mode = pf.text('eSwitchMode') ?? 'legacy';
  if (mode !== 'legacy')
    pf.note('eSwitchMode', `netdra leaves the mode of the card as it is: the operator or the node sets ${mode}`);
  // Rules match by address, since names change. The MTU of VFs is set for each group.
  pf.skip('name', 'mtu', 'linkType');
  const groups = pf.objects('vfGroups');
  pf.end();
  if (address === undefined) {
    pf.lose('pciAddress', 'is missing', 'correct the object');
    return [];
  }
  return groups.flatMap((group): PfRule[] => {
    const name = group.text('resourceName') ?? '';
    const resourceName = `${options.resourcePrefix}/${name}`;
    const vfs = group.text('vfRange');
    const config = configOf(group);
    group.skip('policyName');
    const isVdpa = loseVdpa(group);
    group.end();
    if (isVdpa) return [];
    // If the policy of the group was in the input, its settings are more complete.
    if (!estate.resources.has(resourceName)) estate.addResource(of, resourceName, config);
    const rule = {
      select: { pciAddress: [address] },
      ...(vfs !== undefined && { vfs }),
      ...(numVfs !== undefined && { numVfs }),
      resourceName,
    };
    return [rule];
  });
}
