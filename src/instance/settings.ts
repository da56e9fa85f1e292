import { InvalidArgumentError, Option } from 'commander';
import { cniUses } from '../driver/api/cni-uses.ts';
import { deviceInfoDir } from '../driver/dialects/device-info.ts';
import { closedFields } from '../driver/model/index.ts';
import { metadataVersions } from '../framework/metadata/document/codec.ts';
import { defaultHooklessHandlers, startGateModes } from '../framework/metadata/gate/choose-start-gate.ts';
import { defaultHostDirs, layoutNames } from '../framework/metadata/layouts/layout.ts';
import { simulatedPrefix } from '../node/sriov/pci-address.ts';
import {
  namesAmong,
  parseAbsolutePath,
  parseAddress,
  parseBoolean,
  parseDriverName,
  parseHandlers,
  parseList,
  parseNamespace,
  parseSeconds,
  parseSimulation,
} from './parse-flags.ts';

/** Sources of a flag's value besides the command line. */
interface FlagSource {
  /**
   * Environment variable with the value. Tools read it too, so that in the driver's container they use the driver's settings.
   */
  env?: string;
  /** Default value in the form of the command line. Absent: without the flag the setting is `undefined`. */
  default?: string;
}

/** A flag of `netdra run`, which determines one setting. */
interface Flag extends FlagSource {
  /** Placeholder of the value in the help, such as `<path>`; in brackets, such as `[bool]`, the value is optional. */
  value: string;
  help: string;
  /** Converts the text to the setting. Default: the text itself. */
  parse?: (text: string) => unknown;
  choices?: readonly string[];
  isMandatory?: boolean;
  isHidden?: boolean;
}

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** Declares a flag whose value is an absolute path. */
function directory<Options extends FlagSource>(help: string, options: Options) {
  return { value: '<path>', help, parse: parseAbsolutePath, ...options };
}

/** Declares a boolean flag that is off by default. */
function toggle(help: string, options: FlagSource = {}) {
  return { value: '[bool]', help, default: 'false', parse: parseBoolean, ...options };
}

/**
 * All flags of `netdra run`, by the name of their setting, from which the flag's name is derived. Directories are absolute
 * paths, under which the kubelet sees them, too.
 */
const flags = {
  driverName: {
    value: '<name>',
    env: 'NETDRA_DRIVER_NAME',
    default: 'sriov.netdra.dev',
    parse: parseDriverName,
    help: 'name of the driver in claims and ResourceSlices',
  },
  nodeName: { value: '<name>', env: 'NODE_NAME', isMandatory: true, help: 'name of the Node object of this machine' },
  kubeconfig: {
    value: '<path>',
    env: 'KUBECONFIG',
    help: 'kubeconfig file for the API server (default: the service account of the pod)',
  },
  kubeletPluginsDir: directory("the kubelet's plugins directory", {
    env: 'NETDRA_KUBELET_PLUGINS_DIR',
    default: '/var/lib/kubelet/plugins',
  }),
  kubeletRegistryDir: directory("the kubelet's registration directory", {
    env: 'NETDRA_KUBELET_REGISTRY_DIR',
    default: '/var/lib/kubelet/plugins_registry',
  }),
  podUid: {
    value: '<uid>',
    env: 'POD_UID',
    help: "UID of the driver's own pod; lets two instances run side by side during a rolling update",
  },
  cdiDir: directory('directory for CDI specs; the runtime must scan it', {
    env: 'NETDRA_CDI_DIR',
    default: '/var/run/cdi',
  }),
  stateDir: directory("directory for the driver's state (default: its directory in the kubelet's plugins)", {
    env: 'NETDRA_STATE_DIR',
  }),
  cniBinDirs: {
    value: '<paths>',
    default: '/opt/cni/bin',
    parse: (text: string) => text.split(',').map(parseAbsolutePath),
    help: 'directories of CNI plugins, searched in this order; comma-separated',
  },
  cniUses: {
    value: '<uses>',
    default: cniUses.join(','),
    parse: namesAmong(cniUses, { mayBeEmpty: true }),
    help: `what CNI plugins may do for claims, comma-separated: ${cniUses.join(', ')}; empty: none`,
  },
  cniAllowedPlugins: {
    value: '<names>',
    default: '*',
    parse: parseList,
    help: 'CNI plugins that may run, comma-separated; *: all',
  },
  cniDefinitionNamespaces: {
    value: '<names>',
    default: '*',
    parse: parseList,
    help: 'namespaces whose NetworkAttachmentDefinitions may select CNI plugins, comma-separated; *: all',
  },
  procSysDir: directory("writable mount of the host's /proc/sys, for sysctls of interfaces", {
    env: 'NETDRA_PROC_SYS_DIR',
    default: '/proc/sys',
  }),
  nriSocket: {
    value: '<path>',
    env: 'NETDRA_NRI_SOCKET',
    default: '/var/run/nri/nri.sock',
    help: "the runtime's NRI socket",
  },
  nriPluginName: { value: '<name>', default: 'netdra', help: 'NRI plugin name' },
  nriPluginIndex: {
    value: '<nn>',
    default: '10',
    help: 'NRI plugin index, two digits: the runtime calls plugins in ascending order',
  },
  metadataLayouts: {
    value: '<names>',
    default: 'v1,kep',
    parse: namesAmong(layoutNames),
    help: `layouts in which metadata files are written (docs/metadata.md), comma-separated: ${layoutNames.join(', ')}`,
  },
  metadataVersions: {
    value: '<versions>',
    default: metadataVersions.join(','),
    parse: namesAmong(metadataVersions),
    help: `API versions of metadata.resource.k8s.io in files of the layout v1, comma-separated: ${metadataVersions.join(', ')}`,
  },
  attributesDir: directory('host directory for metadata files of the layout attributes-json', {
    env: 'NETDRA_ATTRIBUTES_DIR',
    default: defaultHostDirs.attributesDir,
  }),
  downwardApiDir: directory(
    'host directory for metadata files of the layout downward-api, with a subdirectory for each pod',
    {
      env: 'NETDRA_DOWNWARD_API_DIR',
      default: defaultHostDirs.downwardApiDir,
    },
  ),
  deviceInfoDir: directory('host directory for device-info files (docs/dialects.md)', { default: deviceInfoDir }),
  enableDeviceMetadata: toggle('write metadata files for new claims (KEP-5304); the Helm chart sets it', {
    env: 'ENABLE_DEVICE_METADATA',
  }),
  startGate: {
    value: '<mode>',
    env: 'NETDRA_START_GATE',
    default: 'auto',
    choices: startGateModes,
    help: 'how containers wait for their devices (hook: in an OCI hook; file: they are refused until their metadata file exists; auto: file if a runtime handler of the node possibly ignores hooks, otherwise hook)',
  },
  gateProgram: {
    value: '<path>',
    env: 'NETDRA_GATE_PROGRAM',
    help: 'netdra-gate binary that the driver copies to the node as an OCI hook (default: the one next to the driver)',
  },
  hooklessRuntimeHandlers: {
    value: '<names>',
    env: 'NETDRA_HOOKLESS_RUNTIME_HANDLERS',
    default: defaultHooklessHandlers.join(','),
    parse: parseHandlers,
    help: 'runtime handlers that possibly ignore OCI hooks, comma-separated; * matches any characters',
  },
  liveUpdates: toggle('update metadata when addresses, MTU, MAC or link of an interface change in a running pod', {
    default: 'true',
  }),
  listAttributes: toggle(
    'publish the NUMA node of a device as a list, with the other NUMA nodes of its CPU socket; needs the feature gate DRAListTypeAttributes',
  ),
  nodeView: toggle('publish the devices of the node as NodeNetworkDevices; needs their CustomResourceDefinition'),
  openClaimFields: {
    value: '<fields>',
    default: '',
    parse: namesAmong(closedFields, { mayBeEmpty: true }),
    help: `closed fields (docs/vfconfig.md) that claims may set if their DeviceClass does not set them; comma-separated: ${closedFields.join(', ')}`,
  },
  inventoryPolicy: {
    value: '<path>',
    env: 'NETDRA_INVENTORY_POLICY',
    help: 'inventory policy file; reloaded on changes',
  },
  policyObjects: toggle(
    'apply NetworkDevicePolicies, which take precedence over the inventory policy file; needs their CustomResourceDefinition',
  ),
  sriovOperator: {
    value: '<namespace>',
    parse: parseNamespace,
    help: 'taint VFs while the SR-IOV network operator in this namespace drains or configures the node',
  },
  reconcileIntervalMs: {
    value: '<seconds>',
    default: '60',
    parse: parseSeconds,
    help: 'interval at which the driver repairs what differs from the prepared claims',
  },
  bootIdPath: { value: '<path>', isHidden: true, help: "file with the kernel's boot ID" },
  httpAddress: {
    value: '<address>',
    parse: (text: string) => parseAddress(text) && text,
    help: 'address of /metrics, /healthz and /readyz: HOST:PORT, [IPV6]:PORT or :PORT; disabled if unset',
  },
  httpTlsDir: {
    value: '<path>',
    help: 'directory with tls.crt and tls.key for HTTPS; reloaded on changes',
  },
  revision: {
    value: '<text>',
    help: 'name of this revision of the pods: /readyz?revision=TEXT answers with the readiness of the instance that has it',
  },
  vfTraffic: toggle('export the traffic of each VF in a pod as metrics: up to 512 VFs with 8 series each'),
  simulate: {
    value: '<vfs>',
    env: 'NETDRA_SIMULATE',
    parse: parseSimulation,
    help: 'offer simulated VFs (veth pairs) instead of real ones: VFS or PFSxVFS, optionally with the NUMA nodes of the PFs, as in 2x4@0:1',
  },
  simulatePrefix: { value: '<name>', default: simulatedPrefix, help: 'name prefix of simulated interfaces' },
  logLevel: { value: '<level>', default: 'info', choices: logLevels, help: 'minimum log level' },
} as const satisfies Record<string, Flag>;

type Flags = typeof flags;
export type FlagName = keyof Flags;
export const flagNames = Object.keys(flags) as FlagName[];

type Value<F> = F extends { parse: (text: string) => infer T }
  ? T
  : F extends { choices: readonly (infer Choice)[] }
    ? Choice
    : string;
type Given<F> = F extends { default: string } | { isMandatory: true } ? Value<F> : Value<F> | undefined;

/** The settings of `netdra run`. A setting whose flag has no default may be absent. */
export type Settings = {
  [Name in FlagName as undefined extends Given<Flags[Name]> ? never : Name]: Given<Flags[Name]>;
} & { [Name in FlagName as undefined extends Given<Flags[Name]> ? Name : never]?: Given<Flags[Name]> };

/** Returns the flag's name, `--http-tls-dir` for `httpTlsDir`. Leaves out a unit at the end of the setting's name. */
export function flagOf(name: FlagName): string {
  return `--${name.replace(/Ms$/, '').replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** Creates the option of a command for a flag. */
export function flagOption(name: FlagName): Option {
  const flag: Flag = flags[name];
  const { value, help, env, choices, parse = (text: string) => text } = flag;
  const option = new Option(`${flagOf(name)} ${value}`, help).argParser(argument(parse));
  option.attributeName = () => name;
  if (env !== undefined) option.env(env);
  if (choices !== undefined) option.choices(choices);
  if (flag.default !== undefined) option.default(parse(flag.default), flag.default || 'none');
  return option.makeOptionMandatory(flag.isMandatory ?? false).hideHelp(flag.isHidden ?? false);
}

/** Wraps a parser: commander's errors, unlike the parser's, name the flag. */
export function argument(parse: (text: string) => unknown): (text: string) => unknown {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError((error as Error).message);
    }
  };
}
