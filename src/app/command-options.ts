import { InvalidArgumentError, Option } from 'commander';
import { defaultHostDirs } from '../framework/metadata/layouts/layout.ts';
import { parseDriverName, parseSimulation } from './settings.ts';

/**
 * Flags shared by several commands. Environment variables apply to all of them, so that in the driver's container the
 * tools use the driver's own settings.
 */
export const commonOptions = {
  driverName: () =>
    new Option('--driver-name <name>', 'name of the driver in claims and slices')
      .env('NETDRA_DRIVER_NAME')
      .default('sriov.netdra.dev')
      .argParser(argument(parseDriverName)),
  kubeconfig: () =>
    new Option(
      '--kubeconfig <path>',
      'how to reach the API server; without it the service account of the pod is used',
    ).env('KUBECONFIG'),
  kubeletPluginsDir: () =>
    new Option('--kubelet-plugins-dir <path>', "the kubelet's plugins directory")
      .env('NETDRA_KUBELET_PLUGINS_DIR')
      .default('/var/lib/kubelet/plugins'),
  kubeletRegistryDir: () =>
    new Option('--kubelet-registry-dir <path>', "the kubelet's registration directory")
      .env('NETDRA_KUBELET_REGISTRY_DIR')
      .default('/var/lib/kubelet/plugins_registry'),
  cdiDir: () =>
    new Option('--cdi-dir <path>', 'where CDI specs go; the runtime must scan it')
      .env('NETDRA_CDI_DIR')
      .default('/var/run/cdi'),
  stateDir: () =>
    new Option(
      '--state-dir <path>',
      "where the driver keeps its state (default: its directory in the kubelet's plugins)",
    ).env('NETDRA_STATE_DIR'),
  procSysDir: () =>
    new Option('--proc-sys-dir <path>', "where the host's /proc/sys is, writable: for sysctls of interfaces")
      .env('NETDRA_PROC_SYS_DIR')
      .default('/proc/sys'),
  nriSocket: () =>
    new Option('--nri-socket <path>', "the runtime's NRI socket")
      .env('NETDRA_NRI_SOCKET')
      .default('/var/run/nri/nri.sock'),
  attributesDir: () =>
    new Option('--attributes-dir <path>', 'where files of the layout attributes-json go on the node')
      .env('NETDRA_ATTRIBUTES_DIR')
      .default(defaultHostDirs.attributesDir),
  downwardApiDir: () =>
    new Option(
      '--downward-api-dir <path>',
      'where files of the layout downward-api go on the node, into a directory for each pod',
    )
      .env('NETDRA_DOWNWARD_API_DIR')
      .default(defaultHostDirs.downwardApiDir),
  inventoryPolicy: () =>
    new Option(
      '--inventory-policy <path>',
      'file that says which VFs are offered; it is read again when it changes',
    ).env('NETDRA_INVENTORY_POLICY'),
  simulate: () =>
    new Option('--simulate <vfs>', 'offer simulated VFs (veth pairs) instead of real ones: VFS or PFSxVFS')
      .env('NETDRA_SIMULATE')
      .argParser(argument(parseSimulation)),
  /** For read-only commands. */
  output: () => new Option('-o, --output <format>', 'how to write it').choices(['table', 'json']).default('table'),
} as const;

/** Turns a parser's error into commander's, which names the flag. */
export function argument<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError((error as Error).message);
    }
  };
}
