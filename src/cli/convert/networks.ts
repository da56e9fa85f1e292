import { findContradictions } from '../../driver/api/config-rules.ts';
import { mergeVfConfigs } from '../../driver/model/index.ts';
import { interfaceSysctlPattern } from '../../node/netlink/index.ts';
import { loseBond } from './bond.ts';
import { noteFiles, valuesFor } from './cni-values.ts';
import type { Estate, Network, ResourceConfig } from './estate.ts';
import { FieldReader } from './field-reader.ts';
import type { ConversionReport, InputObject } from './report.ts';

const resourceAnnotation = 'k8s.v1.cni.cncf.io/resourceName';
/** Types of CNI plugins that attach the VF in `deviceID`. */
const vfPlugins = ['sriov', 'ib-sriov', 'host-device'];
/** Fields that every CNI plugin has, and fields that affect only its log. */
const fieldsOfCni = ['cniVersion', 'cniVersions', 'name', 'type', 'logLevel', 'logFile', 'disableCheck', 'disableGC'];

/** Names that SriovNetwork and sriov-cni have for the same settings. */
const operatorNames = {
  spoofCheck: 'spoofChk',
  linkState: 'linkState',
  minTxRate: 'minTxRate',
  maxTxRate: 'maxTxRate',
};
const pluginNames = {
  spoofCheck: 'spoofchk',
  linkState: 'link_state',
  minTxRate: 'min_tx_rate',
  maxTxRate: 'max_tx_rate',
};

const conf6 = (key: string) => `net.ipv6.conf.IFNAME.${key}`;
const acceptRa = conf6('accept_ra');
const forwarding = 'net.ipv4.conf.IFNAME.forwarding';

type NetworkConfig = Network['config'];

/**
 * Converts SriovNetworks and SriovIBNetworks.
 * Source: sriov-network-operator, api/v1/sriovnetwork_types.go, sriovibnetwork_types.go.
 */
export function convertSriovNetwork(estate: Estate, of: InputObject, resourcePrefix: string): void {
  const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
  const namespace = spec.text('networkNamespace') ?? of.namespace ?? 'default';
  const resourceName = spec.text('resourceName');
  spec.skip('logLevel', 'logFile');
  const text = spec.text('metaPlugins');
  const plugins = text === undefined ? [] : spec.parse('metaPlugins', `[${text}]`);
  const rest = Array.isArray(plugins) ? plugins.map((each) => spec.nested('metaPlugins', each)) : [];
  const config = ownConfig(spec, operatorNames);
  Object.assign(config, withIpam(spec, spec.json('ipam')));
  const overridable = openedBy(spec, spec.json('capabilities'), attacherOf(config, rest));
  spec.end();
  if (resourceName === undefined) {
    spec.lose('resourceName', 'is missing', 'correct the object');
    return;
  }
  addNetwork(
    estate,
    { of, name: of.name, namespace, resourceName: `${resourcePrefix}/${resourceName}`, config },
    rest,
    {
      reader: spec,
      field: 'metaPlugins',
      overridable,
    },
  );
}

/**
 * Converts NetworkAttachmentDefinitions whose plugin attaches a VF.
 * Source: sriov-cni, pkg/types/types.go; the NetworkAttachmentDefinition specification 1.3.
 */
export function convertDefinition(estate: Estate, of: InputObject): void {
  const spec = new FieldReader(estate.report, of, ['spec'], of.value.spec);
  const whole = spec.json('config');
  spec.end();
  if (whole === undefined) {
    if (!spec.isSet('config')) spec.lose('config', 'is missing', 'put the configuration into the object');
    return;
  }
  const [first = whole, ...rest] = whole.isSet('plugins') ? whole.objects('plugins') : [whole];
  const type = first.text('type') ?? '';
  const resourceName: unknown = Object(Object(of.value.metadata).annotations)[resourceAnnotation];
  if (type === 'bond') {
    loseBond(first, fieldsOfCni);
  } else if (resourceName === undefined && !vfPlugins.includes(type)) {
    estate.report.note(of, [], 'has no VF: it stays with Multus');
  } else if (typeof resourceName !== 'string') {
    estate.report.lost(of, ['metadata', 'annotations'], `has no ${resourceAnnotation}`, 'add it');
  } else {
    const network = { of, name: of.name, namespace: of.namespace ?? 'default', resourceName, config: {} };
    convertChain(estate, network, type, { whole, first, rest });
  }
}

/** Converts a chain of plugins. @param type type of the first plugin, which attaches the VF */
function convertChain(
  estate: Estate,
  network: Network,
  type: string,
  { whole, first, rest }: { whole: FieldReader; first: FieldReader; rest: FieldReader[] },
): void {
  const context = { reader: whole, field: whole.isSet('plugins') ? 'plugins' : 'type' };
  if (!vfPlugins.includes(type)) {
    whole.lose(context.field, `netdra cannot attach a VF with the plugin ${type}`, 'leave the network to Multus');
    return;
  }
  if (type !== 'sriov') {
    // The plugin keeps its task, with its own settings.
    addNetwork(estate, network, [first, ...rest], context);
    return;
  }
  first.skip(...fieldsOfCni, 'deviceID');
  const config = ownConfig(first, pluginNames);
  const mac = first.text('mac');
  if (mac !== undefined) config.macAddress = mac;
  first.loseIfSet('dns', 'netdra sets no name servers', 'set dnsConfig of the pod');
  Object.assign(config, withIpam(first, first.isSet('ipam') ? first.object('ipam') : undefined));
  const overridable = openedBy(first, capabilitiesOf(first), attacherOf(config, rest));
  first.end();
  addNetwork(estate, { ...network, config }, rest, { ...context, overridable });
}

/** Reads settings that the PF applies to the VF. Zero is kept, since it resets the value of an earlier user. */
function ownConfig(fields: FieldReader, names: typeof operatorNames): NetworkConfig {
  const vlan = fields.number('vlan');
  const qos = fields.number('vlanQoS');
  const vlanProto = fields.text('vlanProto')?.toLowerCase() as '802.1q' | undefined;
  const [spoofCheck, trust] = [fields.onOff(names.spoofCheck), fields.onOff('trust')];
  const linkState = fields.text(names.linkState) as 'auto' | undefined;
  const [minTxRate, maxTxRate] = [fields.number(names.minTxRate), fields.number(names.maxTxRate)];
  const vf = {
    ...(vlan !== undefined && { vlan }),
    // The QoS value has no effect without a VLAN.
    ...(vlan && qos !== undefined && { qos }),
    ...(vlan && vlanProto !== undefined && { vlanProto }),
    ...(spoofCheck !== undefined && { spoofCheck }),
    ...(trust !== undefined && { trust }),
    ...(linkState !== undefined && { linkState }),
    ...(minTxRate !== undefined && { minTxRate }),
    ...(maxTxRate !== undefined && { maxTxRate }),
  };
  return Object.keys(vf).length === 0 ? {} : { vf };
}

function withIpam(fields: FieldReader, ipam: FieldReader | undefined): NetworkConfig {
  const type = ipam?.text('type');
  if (ipam === undefined || type === undefined) return {};
  fields.note('ipam', `netdra runs the plugin ${type}: ${valuesFor([type])}`);
  noteFiles(fields, 'ipam', ipam);
  return { ipam: Object.fromEntries(ipam.names().map((name) => [name, ipam.raw(name)])) };
}

/**
 * Component that gives the VF its addresses: netdra from the claim, netdra with an IPAM plugin, or the plugins of the chain.
 */
type Attacher = 'netdra' | 'netdra-with-ipam' | 'plugins';

function attacherOf({ ipam }: NetworkConfig, rest: readonly FieldReader[]): Attacher {
  if (!rest.every(isTuning)) return 'plugins';
  return ipam === undefined ? 'netdra' : 'netdra-with-ipam';
}

function capabilitiesOf(plugin: FieldReader): FieldReader | undefined {
  return plugin.isSet('capabilities') ? plugin.object('capabilities') : undefined;
}

/** Returns the fields that claims may set. In the original, pods set them in their annotation. */
function openedBy(fields: FieldReader, capabilities: FieldReader | undefined, attacher: Attacher) {
  if (capabilities === undefined) return [];
  const [mac, ips] = [capabilities.flag('mac'), capabilities.flag('ips')];
  capabilities.skip('deviceID', 'CNIDeviceInfoFile', 'infinibandGUID');
  if (capabilities.isSet('infinibandGUID')) {
    capabilities.lose('infinibandGUID', 'netdra sets no GUIDs', 'let the operator or the subnet manager set them');
  }
  if (ips && attacher === 'plugins') {
    const todo = 'let the ipam of the network choose them, or leave the network to Multus';
    capabilities.lose('ips', 'claims give plugins no addresses', todo);
  }
  capabilities.end();
  const what = attacher === 'plugins' ? 'the MAC' : 'MAC and addresses';
  if (mac || (ips && attacher !== 'plugins'))
    fields.note('capabilities', `pods set ${what} in the claim instead of the annotation`);
  return [
    ...(mac ? ['macAddress' as const] : []),
    ...(ips && attacher === 'netdra-with-ipam' ? ['addresses' as const] : []),
  ];
}

interface ChainContext {
  reader: FieldReader;
  /** Name of the field that lists the plugins, for reports. */
  field: string;
  overridable?: ('macAddress' | 'addresses')[];
}

/** Adds a network. Converts its further plugins to settings; if one of them has no equivalent, all plugins stay. */
function addNetwork(estate: Estate, network: Network, rest: readonly FieldReader[], context: ChainContext): void {
  const { overridable = [], reader, field } = context;
  const foreign = rest.find((plugin) => !isTuning(plugin))?.text('type');
  if (rest.every(isTuning)) {
    const config = withSlaac(rest.map(tuningConfig).reduce<NetworkConfig>(mergeVfConfigs, network.config));
    const opened = new Set([...overridable, ...rest.flatMap(openedByTuning)]);
    if (opened.size > 0) config.overridable = [...opened];
    estate.networks.push({ ...network, config });
    return;
  }
  const opened = new Set([
    ...overridable,
    ...rest.flatMap((plugin) => openedBy(plugin, capabilitiesOf(plugin), 'plugins')),
  ]);
  const { of, name, namespace } = network;
  const ipams = rest.flatMap((plugin) => (plugin.isSet('ipam') ? plugin.object('ipam') : []));
  const types = [...rest, ...ipams].flatMap((plugin) => plugin.text('type') ?? []);
  const what = `netdra has no settings for the plugin ${foreign}: the network keeps its plugins`;
  reader.note(field, `${what}, so ${valuesFor(types, namespace)}`);
  for (const ipam of ipams) noteFiles(reader, field, ipam);
  if (of.kind !== 'NetworkAttachmentDefinition') {
    const why = `netdra runs the definition ${namespace}/${name}, which the operator deletes with the ${of.kind}`;
    reader.note(field, `${why}: save it before you remove the operator, and apply it again`);
  }
  const config: NetworkConfig = { attach: 'cni', networkAttachmentDefinition: { name, namespace } };
  if (opened.size > 0) config.overridable = [...opened];
  estate.networks.push({ ...network, config });
}

/** Returns whether a plugin is `tuning` with only settings that a VFConfig has. */
function isTuning(plugin: FieldReader): boolean {
  const known = [...fieldsOfCni, 'capabilities', 'dataDir', 'sysctl', 'mac', 'mtu', 'allmulti', 'promisc'];
  const keys = Object.keys(plugin.labels('sysctl'));
  return (
    plugin.text('type') === 'tuning' &&
    plugin.names().every((name) => known.includes(name)) &&
    keys.every((key) => interfaceSysctlPattern.test(key))
  );
}

function openedByTuning(plugin: FieldReader) {
  // The `tuning` plugin takes no addresses from pods.
  return openedBy(plugin, capabilitiesOf(plugin), 'netdra');
}

function tuningConfig(plugin: FieldReader): NetworkConfig {
  const [sysctls, macAddress, mtu] = [plugin.labels('sysctl'), plugin.text('mac'), plugin.number('mtu')];
  const allMulticast = plugin.isSet('allmulti') ? plugin.flag('allmulti') : undefined;
  return {
    ...(Object.keys(sysctls).length > 0 && { sysctls }),
    ...(macAddress !== undefined && { macAddress }),
    ...(mtu !== undefined && { mtu }),
    ...(allMulticast !== undefined && { allMulticast }),
    // The `tuning` plugin never turns promiscuous mode off.
    ...(plugin.flag('promisc') && { promiscuous: true }),
  };
}

/**
 * Sets `slaac` if the kernel should take addresses from routers with these sysctls: without `slaac`, netdra turns `autoconf`
 * off.
 */
function withSlaac(config: NetworkConfig): NetworkConfig {
  const { sysctls = {}, ...rest } = config;
  const { [acceptRa]: accepted = 1, ...others } = sysctls;
  const isAsked = [acceptRa, conf6('autoconf')].some((key) => sysctls[key] !== undefined);
  const takesRoutes = Number(sysctls[conf6('accept_ra_defrtr')] ?? 1) !== 0;
  const slaac = { waitSeconds: 0, ...(takesRoutes && { defaultRoute: true }) };
  // The kernel ignores advertisements with what contradicts slaac.
  const ignored = findContradictions({ slaac, mtu: rest.mtu, sysctls: { ...others, [acceptRa]: accepted } });
  if (!isAsked || ignored.length > 0) return config;
  return { ...rest, slaac, ...(Object.keys(others).length > 0 && { sysctls: others }) };
}

/**
 * Adds a note about features that are on by default for an interface that another plugin moves, but off for one that netdra
 * moves.
 */
export function noteClosed(report: ConversionReport, of: InputObject, config: NetworkConfig): void {
  const { attach = 'netlink', driver = 'kernel', keepHostConfig, slaac, sysctls = {} } = config;
  if (attach !== 'netlink' || driver.includes('vfio')) return;
  // `slaac` and `keepHostConfig` exclude each other.
  const isChosen = keepHostConfig === true || slaac !== undefined || sysctls[acceptRa] !== undefined;
  const closed = [
    ...(isChosen ? [] : [['IPv6 router advertisements', 'slaac']]),
    ...(sysctls[forwarding] === undefined ? [['IPv4 forwarding', `${forwarding} in sysctls`]] : []),
  ];
  if (closed.length === 0) return;
  const [what, how] = [0, 1].map((part) => closed.map((each) => each[part]).join(' and '));
  report.note(of, [], `netdra closes the interface to ${what}: if pods need that, set ${how} of the class`);
}

/** Merges the settings for the class of a network: those of its VFs, and those of the network. */
export function mergedConfig(resource: ResourceConfig, network: NetworkConfig): NetworkConfig {
  const { mtu, ...rest } = resource;
  // CNI plugins set the MTU themselves.
  const own = network.attach === undefined && mtu !== undefined ? { mtu } : {};
  return { ...rest, ...own, ...network };
}
