import type { ContainerdSeries } from './tools.ts';

/** The runtime handler of pods without a default network, as in `examples/no-default-network.yaml`. */
export const noDefaultNetwork = 'no-default-network';

/** Settings of our containerd. Paths are absolute, folders need not exist. */
export interface ContainerdSettings {
  rootDir: string;
  stateDir: string;
  socketPath: string;
  /** Folder of the plugin for optional programs; else it uses /opt/containerd. */
  optDir: string;
  runc: string;
  snapshotter: 'overlayfs' | 'native';
  sandboxImage: string;
  cniBinDir: string;
  cniConfDir: string;
  /** With the CNI configuration of {@link noDefaultNetwork}; absent: there is no such handler. */
  noNetworkConfDir?: string;
  cdiSpecDirs: readonly string[];
  nri: NriSettings;
}

export interface NriSettings {
  socketPath: string;
  /** Folders of plugins that containerd starts itself, and of their configuration. */
  pluginDir: string;
  pluginConfigDir: string;
  registrationTimeoutMs: number;
  requestTimeoutMs: number;
}

type TomlValue = string | number | boolean | readonly string[] | { readonly [key: string]: TomlValue };

/** The configuration file: version 3 for 2.x, version 2 for 1.7. Source: containerd's `config default` of both. */
export function formatContainerdConfig(series: ContainerdSeries, settings: ContainerdSettings): string {
  const plugins = series === '1.7' ? pluginsOfVersion2(settings) : pluginsOfVersion3(settings);
  return formatToml({
    version: series === '1.7' ? 2 : 3,
    root: settings.rootDir,
    state: settings.stateDir,
    grpc: { address: settings.socketPath },
    plugins: {
      ...plugins,
      'io.containerd.nri.v1.nri': nriSection(settings.nri),
      'io.containerd.internal.v1.opt': { path: settings.optDir },
    },
  });
}

function pluginsOfVersion3(settings: ContainerdSettings): Record<string, TomlValue> {
  return {
    'io.containerd.cri.v1.runtime': {
      ...runtimeSection(settings),
      containerd: runcSection(settings),
      cni: { bin_dirs: [settings.cniBinDir], conf_dir: settings.cniConfDir },
    },
    'io.containerd.cri.v1.images': {
      snapshotter: settings.snapshotter,
      pinned_images: { sandbox: settings.sandboxImage },
    },
  };
}

function pluginsOfVersion2(settings: ContainerdSettings): Record<string, TomlValue> {
  return {
    'io.containerd.grpc.v1.cri': {
      ...runtimeSection(settings),
      sandbox_image: settings.sandboxImage,
      containerd: { ...runcSection(settings), snapshotter: settings.snapshotter },
      cni: { bin_dir: settings.cniBinDir, conf_dir: settings.cniConfDir },
    },
  };
}

function runtimeSection(settings: ContainerdSettings): Record<string, TomlValue> {
  return {
    enable_cdi: true,
    cdi_spec_dirs: settings.cdiSpecDirs,
    // Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj and refuses the sandbox.
    restrict_oom_score_adj: true,
    // AppArmor is not needed here, and a loaded profile would outlive the node.
    disable_apparmor: true,
  };
}

function runcSection(settings: ContainerdSettings): Record<string, TomlValue> {
  const runc = {
    runtime_type: 'io.containerd.runc.v2',
    options: { BinaryName: settings.runc, SystemdCgroup: false },
  };
  const { noNetworkConfDir: cni_conf_dir } = settings;
  const more = cni_conf_dir === undefined ? {} : { [noDefaultNetwork]: { ...runc, cni_conf_dir } };
  return { default_runtime_name: 'runc', runtimes: { runc, ...more } };
}

function nriSection(nri: NriSettings): Record<string, TomlValue> {
  return {
    disable: false,
    disable_connections: false,
    socket_path: nri.socketPath,
    plugin_path: nri.pluginDir,
    plugin_config_path: nri.pluginConfigDir,
    plugin_registration_timeout: `${nri.registrationTimeoutMs}ms`,
    plugin_request_timeout: `${nri.requestTimeoutMs}ms`,
  };
}

/** TOML of nested tables. A JSON string or list of strings is also valid TOML. */
export function formatToml(table: Record<string, TomlValue>, path: readonly string[] = []): string {
  const entries = Object.entries(table);
  const isTable = (value: TomlValue) => typeof value === 'object' && !Array.isArray(value);
  const values = entries.filter(([, value]) => !isTable(value));
  const tables = entries.filter(([, value]) => isTable(value));
  const head = path.length > 0 && values.length > 0 ? `\n[${path.map((key) => JSON.stringify(key)).join('.')}]\n` : '';
  const lines = values.map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`);
  const rest = tables.map(([key, value]) => formatToml(value as Record<string, TomlValue>, [...path, key]));
  return head + lines.join('') + rest.join('');
}
