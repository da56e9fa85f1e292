import type { LabelSelector } from '../../driver/api/class-config.ts';
import type { Estate, PfRule, ResourceConfig } from './estate.ts';
import { attributeOf, oneOf } from './expressions.ts';
import { FieldReader } from './field-reader.ts';
import type { InputObject } from './report.ts';
import { selectNodes, splitByRange, splitRange, toLinkType } from './selectors.ts';

/** Default resource prefix of the device plugin. */
const defaultPrefix = 'intel.com';
/** Key in the ConfigMap that applies to all nodes. The SR-IOV operator adds one key per node, with the node's name. */
const keyForAll = 'config.json';

/** Selectors without an equivalent. If one is set, no rule is written: without the selector it would cover more devices. */
const foreignSelectors = ['ddpProfiles', 'acpiIndexes', 'pKeys', 'auxTypes', 'vdpaType'];

/** Returns whether a ConfigMap configures the SR-IOV network device plugin. */
export function isDevicePluginConfig({ value }: InputObject): boolean {
  return Object.values(Object(value.data)).some((text) => typeof text === 'string' && text.includes('"resourceList"'));
}

/**
 * Converts ConfigMaps of the SR-IOV network device plugin.
 * Source: sriov-network-device-plugin, pkg/types/types.go `ResourceConfig` and its selectors.
 */
export function convertDevicePlugin(estate: Estate, of: InputObject, driver: string): void {
  const data = new FieldReader(estate.report, of, ['data'], of.value.data);
  for (const key of data.names()) {
    const config = data.json(key);
    if (config === undefined) continue;
    const nodeSelector = key === keyForAll ? {} : selectNodes(data, key, [key]);
    if (key === keyForAll)
      data.note(key, 'the policy is for all nodes: narrow its nodeSelector to those of the device plugin');
    for (const [index, resource] of config.objects('resourceList').entries()) {
      convertResource({ estate, of, driver, nodeSelector, priority: index }, resource);
    }
    config.end();
  }
}

interface Context {
  estate: Estate;
  of: InputObject;
  driver: string;
  nodeSelector: LabelSelector;
  priority: number;
}

function convertResource({ estate, of, driver, nodeSelector, priority }: Context, resource: FieldReader): void {
  const name = `${resource.text('resourcePrefix') ?? defaultPrefix}/${resource.text('resourceName')}`;
  const type = resource.text('deviceType') ?? 'netDevice';
  if (type !== 'netDevice') {
    resource.lose('deviceType', `netdra has no devices of type ${type}`, 'keep the device plugin for this resource');
    return;
  }
  if (resource.flag('excludeTopology'))
    resource.note(
      'excludeTopology',
      'netdra publishes the NUMA node, which matters only to claims that select or match by it',
    );
  resource.loseIfSet('additionalInfo', 'containers get no variables of an administrator', 'set them in the pod');
  const selectors = resource.objects('selectors');
  const all = selectors.filter(hasEquivalent).map((each) => readSelectors(each, driver));
  resource.end();
  for (const { rules, narrowedBy } of all) {
    for (const rule of rules) {
      estate.rules.push({ of, nodeSelector, priority, rule: { ...rule, resourceName: name }, narrowedBy });
    }
  }
  // The policy's rules match the driver in each selector. The class sets a driver only if all selectors do.
  const isDriverOpen = all.some(({ config }) => config.driver === undefined);
  for (const { config, terms } of all) {
    const { driver: own, ...others } = config;
    estate.addResource(of, name, { ...(own && !isDriverOpen && { driver: own }), ...others }, terms);
  }
}

function hasEquivalent(selectors: FieldReader): boolean {
  const foreign = foreignSelectors.filter((field) => selectors.isSet(field));
  for (const field of foreign)
    selectors.lose(field, 'netdra does not select devices by it', 'keep the device plugin for these devices');
  return foreign.length === 0;
}

function readSelectors(selectors: FieldReader, driver: string) {
  const drivers = selectors.texts('drivers');
  const config = configOf(selectors, drivers);
  const [devices, addresses] = [selectors.texts('devices'), selectors.texts('pciAddresses')];
  const isRdma = selectors.flag('isRdma') === true;
  if (isRdma && !config.driver?.includes('vfio')) config.rdma = true;
  const terms = [
    ...(devices ? [oneOf(attributeOf(driver, 'device'), devices)] : []),
    ...(addresses ? [oneOf(attributeOf(driver, 'pciAddress'), addresses)] : []),
    ...(isRdma ? [attributeOf(driver, 'rdma')] : []),
  ];
  const rules = rulesOf(selectors, drivers);
  selectors.end();
  const narrowedBy = [devices && 'devices', addresses && 'pciAddresses', isRdma && 'isRdma'].filter(Boolean).join(', ');
  return { rules, config, terms, narrowedBy: narrowedBy || undefined };
}

function configOf(selectors: FieldReader, drivers: readonly string[] = []): ResourceConfig {
  const config: ResourceConfig = {};
  const userSpace = drivers.filter((name) => /vfio|uio|pci-stub/.test(name));
  const foreign = userSpace.find((name) => !name.includes('vfio'));
  if (foreign !== undefined) {
    selectors.lose('drivers', `netdra binds VFs to vfio only, not to ${foreign}`, 'bind the VFs to vfio-pci');
  } else if (drivers.length === 0 || (userSpace.length > 0 && userSpace.length < drivers.length)) {
    selectors.note(
      'drivers',
      'the class sets no driver: each VF keeps the one that it is bound to, as in the device plugin',
    );
  } else config.driver = userSpace[0] ?? 'kernel';
  if (selectors.flag('needVhostNet')) config.vhost = true;
  return config;
}

/** Converts selectors to rules. Both `pfNames` and `rootDevices` can have ranges: each pair of them becomes a rule. */
function rulesOf(selectors: FieldReader, drivers: readonly string[] | undefined): PfRule[] {
  const vendor = selectors.texts('vendors');
  const linkType = toLinkType(selectors, 'linkTypes');
  const names = splitByRange(selectors.texts('pfNames') ?? []);
  const roots = selectors.texts('rootDevices') ?? [];
  const ranged = names.some(({ vfs }) => vfs !== undefined) && roots.some((each) => splitRange(each).vfs !== undefined);
  if (ranged) selectors.lose('rootDevices', 'pfNames has ranges of VFs, too', 'put the ranges into one of both');
  return names.flatMap((byName) =>
    splitByRange(roots).map((byAddress): PfRule => {
      const vfs = byName.vfs ?? byAddress.vfs;
      return {
        select: {
          ...(byName.values.length > 0 && { name: byName.values }),
          ...(byAddress.values.length > 0 && { pciAddress: byAddress.values }),
          ...(vendor && { vendor }),
          ...(linkType && { linkType }),
        },
        ...(vfs !== undefined && { vfs }),
        ...(drivers && { vfDriver: [...drivers] }),
      };
    }),
  );
}
