import type { EthtoolConfig, RouteConfig, VfConfig } from '../../driver/model/index.ts';
import { defined } from '../../lib/defined.ts';
import { kernelFeatures, type Neighbor, parseCidr, type Rule } from '../../node/netlink/index.ts';
import type { FieldReader } from './field-reader.ts';
import { keptHostConfig } from './host-config.ts';

/** Another DRA driver for network devices: its names and parameters, and their equivalents in netdra. */
export interface Dialect {
  /** Name of the driver, and domain of its attributes. */
  driver: string;
  /** Name of the DeviceClass that the driver's installation creates; `undefined` if it creates none. */
  className: string | undefined;
  /** Names of netdra's attributes, by the names of the driver's attributes that have an equivalent. */
  attributes: Record<string, string>;
  /** Settings that the driver applies to all devices, without a field in its configuration. */
  defaults: VfConfig;
  /** Returns settings that the driver applies, without a field in its configuration, to the devices that a class selects. */
  impliedFor?: typeof keptHostConfig;
  readConfig(parameters: FieldReader): VfConfig;
}

/** dra-driver-sriov. Source: pkg/consts/consts.go, pkg/api/virtualfunction/v1alpha1/api.go. */
export const draDriverSriov: Dialect = {
  driver: 'sriovnetwork.k8snetworkplumbingwg.io',
  className: 'sriovnetwork.k8snetworkplumbingwg.io',
  attributes: {
    vendor: 'vendor',
    deviceID: 'device',
    pciAddress: 'pciAddress',
    pfPciAddress: 'pfPciAddress',
    PFName: 'pfName',
    EswitchMode: 'eswitchMode',
    vfID: 'vfIndex',
    linkType: 'linkType',
    rdmaCapable: 'rdma',
  },
  // Containers with a device of this driver always get these variables.
  defaults: { dialects: { sriovNetwork: {} } },
  readConfig(parameters) {
    const config: VfConfig = {};
    parameters.skip('apiVersion', 'kind');
    const driver = parameters.text('driver');
    if (driver !== undefined) config.driver = driver === 'default' ? 'kernel' : driver;
    const interfaceName = parameters.text('ifName');
    if (interfaceName !== undefined) config.interfaceName = interfaceName;
    if (parameters.flag('addVhostMount')) config.vhost = true;
    const [name, namespace] = [parameters.text('netAttachDefName'), parameters.text('netAttachDefNamespace')];
    if (name !== undefined) {
      config.dialects = { sriovNetwork: { networkAttachmentDefinition: name } };
      if (config.driver?.includes('vfio')) {
        parameters.note(
          'netAttachDefName',
          'a VF on vfio needs no definition: its settings go into vf and ipam of the class',
        );
        parameters.lose(
          'netAttachDefName',
          'CNI plugins attach no VF on vfio',
          'convert the definition, too, and use its class',
        );
      } else {
        config.attach = 'cni';
        config.networkAttachmentDefinition = { name, ...(namespace !== undefined && { namespace }) };
        const plugins = 'for plugins outside its default, cni.allowedPlugins';
        const values = `set cni.enabled, cni.definitionNamespaces and, ${plugins}, in the chart's values`;
        parameters.note('netAttachDefName', values);
      }
    }
    parameters.end();
    return config;
  },
};

/** DRANET. Source: pkg/apis/attributes.go, pkg/apis/types.go. */
export const dranet: Dialect = {
  driver: 'dra.net',
  className: undefined,
  attributes: {
    // DRANET allocates whole NICs, each of which is a PF of its own.
    ifName: 'pfName',
    mac: 'mac',
    mtu: 'mtu',
    rdma: 'rdma',
    rdmaDevice: 'rdmaDevice',
    pciAddress: 'pciAddress',
  },
  defaults: {},
  impliedFor: keptHostConfig,
  readConfig(parameters) {
    const config: VfConfig = {};
    const ofInterface = parameters.object('interface');
    readInterface(ofInterface, config);
    const routes = parameters.objects('routes').flatMap(readRoute);
    if (routes.length > 0) config.routes = routes;
    const rules = parameters.objects('rules').flatMap(readRule);
    if (rules.length > 0) config.rules = rules;
    checkVrf(ofInterface, config);
    const neighbors = parameters.objects('neighbors').flatMap(readNeighbor);
    if (neighbors.length > 0) config.neighbors = neighbors;
    parameters.loseIfSet(
      'profile',
      'netdra does not fetch profiles from a cloud provider',
      'write the settings into the claim or class',
    );
    const ethtool = readEthtool(parameters.object('ethtool'));
    if (Object.keys(ethtool).length > 0) config.ethtool = ethtool;
    parameters.end();
    return config;
  },
};

const sysctlsOfInterface = { forwarding: 'forwarding', arpIgnore: 'arp_ignore', arpAnnounce: 'arp_announce' };

function readInterface(fields: FieldReader, config: VfConfig): void {
  const interfaceName = fields.text('name');
  if (interfaceName !== undefined) config.interfaceName = interfaceName;
  const [addresses, mtu, mac] = [fields.texts('addresses'), fields.number('mtu'), fields.text('hardwareAddr')];
  if (addresses !== undefined) {
    config.addresses = addresses;
    fields.note('addresses', 'DRANET also copies routes that the NIC has on the host: add those that the pod needs');
  }
  if (mtu !== undefined) config.mtu = mtu;
  if (mac !== undefined) config.macAddress = mac.toLowerCase();
  const sysctls = Object.entries(sysctlsOfInterface).flatMap(([field, key]) => {
    const value = fields.raw(field);
    return value === undefined ? [] : [[`net.ipv4.conf.IFNAME.${key}`, Number(value)]];
  });
  if (sysctls.length > 0) config.sysctls = Object.fromEntries(sysctls);
  if (addresses !== undefined || fields.raw('dhcp') === true) config.keepHostConfig = false;
  fields.loseIfSet('dhcp', 'netdra leaves DHCP to an IPAM plugin', 'set ipam: { type: dhcp } in the class');
  const limits = defined({
    gsoMaxBytes: fields.number('gsoMaxSize'),
    groMaxBytes: fields.number('groMaxSize'),
    gsoMaxBytesIpv4: fields.number('gsoIPv4MaxSize'),
    groMaxBytesIpv4: fields.number('groIPv4MaxSize'),
  });
  if (Object.keys(limits).length > 0) config.offloadLimits = limits;
  fields.loseIfSet('disableEbpfPrograms', 'netdra removes no eBPF programs', 'remove them on the node');
  readVrf(fields.object('vrf'), config);
  fields.end();
}

function readVrf(fields: FieldReader, config: VfConfig): void {
  const [name, table] = [fields.text('name'), fields.number('table')];
  if (name !== undefined && table !== undefined) config.vrf = { name, table };
  else if (name !== undefined) fields.lose('name', 'a VRF of netdra needs a table', 'choose one, and set vrf');
  fields.end();
}

/** Leaves out a VRF that the driver would refuse. */
function checkVrf(fields: FieldReader, config: VfConfig): void {
  const { vrf, rules = [], routes = [] } = config;
  if (vrf === undefined || (rules.length === 0 && routes.every(({ table = vrf.table }) => table === vrf.table))) return;
  delete config.vrf;
  const what = `VRF ${vrf.name} has table ${vrf.table}, and netdra combines it neither with rules nor with other tables`;
  fields.lose('vrf', what, 'remove the VRF, or rules and tables');
}

/** Reads the settings of ethtool. Like DRANET, accepts the names that the program ethtool has for features. */
function readEthtool(fields: FieldReader): EthtoolConfig {
  const [features, privateFlags] = [
    readSwitches(fields.object('features'), true),
    readSwitches(fields.object('privateFlags')),
  ];
  fields.end();
  return defined({ features, privateFlags });
}

function readSwitches(fields: FieldReader, areFeatures = false): Record<string, boolean> | undefined {
  const switches = fields.names().flatMap((name): [string, boolean][] => {
    const isOn = fields.flag(name);
    const features = areFeatures ? kernelFeatures(name) : [];
    if (isOn === undefined) return [];
    if (features.length === 0) return [[name, isOn]];
    if (!isOn || features.length === 1) return features.map((feature) => [feature, isOn]);
    fields.lose(name, 'stands for several features', `switch on those that the driver has: ${features.join(', ')}`);
    return [];
  });
  return switches.length === 0 ? undefined : Object.fromEntries(switches);
}

function readRoute(fields: FieldReader): RouteConfig[] {
  const [destination, gateway, source] = [fields.text('destination'), fields.text('gateway'), fields.text('source')];
  const [asked, table] = [fields.number('scope'), tableOf(fields)];
  const isIpv6 = destination?.includes(':') === true;
  if (isIpv6 && asked !== undefined) fields.note('scope', 'left out: IPv6 routes have no scope');
  const scope = isIpv6 ? undefined : asked;
  // Kernel defaults: scope global with a gateway, and link (253) without a gateway.
  const isUsual = scope === undefined || scope === (gateway === undefined ? 253 : 0);
  if (!isUsual && scope !== 0) {
    fields.lose('scope', `a route of netdra has no scope ${scope}`, 'assign it with ipam of the class');
  }
  fields.end();
  // Not converted: without its table, the route would go into the main table and affect all traffic of the pod.
  if (destination === undefined || table === 'lost') return [];
  try {
    parseCidr(destination);
  } catch (error) {
    fields.lose('destination', (error as Error).message, 'correct the object');
    return [];
  }
  return [
    { destination, ...defined({ gateway, source, table, scope: isUsual || scope !== 0 ? undefined : 'global' }) },
  ];
}

function readRule(fields: FieldReader): Rule[] {
  const [source, destination] = [fields.text('source'), fields.text('destination')];
  const [priority, table] = [fields.number('priority'), tableOf(fields)];
  fields.end();
  if (priority !== undefined && typeof table === 'number' && (source ?? destination) !== undefined) {
    return [{ priority, table, ...defined({ source, destination }) }];
  }
  if (priority !== undefined && table === undefined) {
    fields.lose('table', 'netdra has no rules to the main table', 'use another table, or remove the rule');
  } else if (table !== 'lost') {
    const todo = 'add what is missing, or remove the rule';
    fields.lose('priority', 'a rule of netdra has a priority, a table and a source or destination', todo);
  }
  return [];
}

function readNeighbor(fields: FieldReader): Neighbor[] {
  const [address, macAddress] = [fields.text('destination'), fields.text('hardwareAddr')];
  fields.end();
  if (address !== undefined && macAddress !== undefined) return [{ address, macAddress: macAddress.toLowerCase() }];
  fields.lose('destination', 'a neighbor has an address and a MAC address', 'correct the object');
  return [];
}

/** Reads the number of a routing table; `undefined` for the main table (254), which is the default. */
function tableOf(fields: FieldReader): number | 'lost' | undefined {
  const table = fields.number('table');
  if (table === undefined || table === 0 || table === 254) return undefined;
  if (table !== 253 && table !== 255) return table;
  fields.lose('table', `netdra leaves table ${table} to the kernel`, 'use another table, from 1 to 252 or above 255');
  return 'lost';
}

const listOf = (value: unknown): unknown[] => [value ?? []].flat();
const isQuoted = (driver: string, text: string) => ['"', "'"].some((quote) => text.includes(quote + driver + quote));

/**
 * Returns whether a class or request is for the driver: an entry of `config` names the driver, or a CEL expression of
 * `selectors` quotes its name.
 */
export function isMeant(
  { driver }: Dialect,
  { config, selectors }: { readonly config?: unknown; readonly selectors?: unknown },
): boolean {
  return (
    listOf(config).some((each) => Object(Object(each).opaque).driver === driver) ||
    listOf(selectors).some((each) => isQuoted(driver, `${Object(Object(each).cel).expression}`))
  );
}

/**
 * Rewrites CEL for devices of another driver.
 * @returns as `text`, the new CEL; as `unknown`, the first name without an equivalent
 */
export function rewriteExpression(
  { driver, attributes }: Dialect,
  text: string,
  ours: string,
): { text: string; unknown?: undefined } | { text?: undefined; unknown: string } {
  const name = driver.replaceAll('.', '\\.');
  const domain = `device\\.attributes\\[["']${name}["']\\]`;
  const all = `device.attributes["${ours}"]`;
  const unknown = new Set<string>();
  const rename = (name: string, form: (renamed: string) => string) => {
    if (name === 'numaNode') return form('numaNode').replace(all, 'device.attributes["resource.kubernetes.io"]');
    // netdra's equivalent is the attribute `kind`.
    if (name === 'isSriovVf') return `(${all}.kind == "vf")`;
    const renamed = attributes[name];
    if (renamed === undefined) unknown.add(name);
    return form(renamed ?? name);
  };
  const rewritten = text
    .replaceAll(new RegExp(`["'](\\w+)["']\\s+in\\s+${domain}`, 'g'), (_, name) =>
      rename(name, (each) => `"${each}" in ${all}`),
    )
    .replaceAll(new RegExp(`${domain}\\.(\\w+)`, 'g'), (_, name) => rename(name, (each) => `${all}.${each}`))
    .replaceAll(new RegExp(`(device\\.driver\\s*==\\s*)["']${name}["']`, 'g'), (_, is) => `${is}"${ours}"`);
  const [first] = unknown;
  if (first !== undefined) return { unknown: `the attribute ${first}` };
  return isQuoted(driver, rewritten) ? { unknown: driver } : { text: rewritten };
}
