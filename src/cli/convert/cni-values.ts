import type { FieldReader } from './field-reader.ts';

/** Default of `cni.allowedPlugins` in the chart's values. */
export const allowedPlugins = [
  'host-device',
  'sriov',
  'ib-sriov',
  'tuning',
  'vrf',
  'sbr',
  'host-local',
  'static',
  'dhcp',
  'whereabouts',
];
/** Defaults of `cni.binDirectoryPath` and `cni.stateDirectoryPath`. The driver's pod has no other directories for plugins. */
const directories = ['/opt/cni/bin/', '/var/lib/cni/'];
const below = 'below cni.binDirectoryPath or cni.stateDirectoryPath';

/**
 * Returns a text with the chart values that CNI plugins need. @param namespace namespace of the NetworkAttachmentDefinition
 * that names the plugins
 */
export function valuesFor(types: readonly string[], namespace?: string): string {
  const others = [...new Set(types)].filter((type) => !allowedPlugins.includes(type));
  const values = [
    'set cni.enabled',
    ...(namespace === undefined ? [] : [`cni.definitionNamespaces: [${namespace}]`]),
    ...(others.length > 0 ? [`add ${others.join(', ')} to cni.allowedPlugins`] : []),
  ];
  return `${values.join(' and ')} in the chart's values`;
}

/** Adds a note about files of an IPAM plugin that the driver's pod lacks. @param field field that holds `ipam`, for the note */
export function noteFiles(fields: FieldReader, field: string, ipam: FieldReader): void {
  const type = ipam.text('type') ?? '';
  const hasFile = (name: string) => directories.some((path) => ipam.text(name)?.startsWith(path));
  if (type === 'dhcp') {
    const socket = hasFile('daemonSocketPath')
      ? 'as before'
      : 'with its socket below cni.stateDirectoryPath: set daemonSocketPath in its ipam';
    fields.note(field, `the daemon of the plugin dhcp has to run on the node, ${socket}`);
  } else if (type === 'whereabouts' && !hasFile('configuration_path')) {
    const why = `the driver's pod has no ${ipam.text('configuration_path') ?? '/etc/cni/net.d'}, where whereabouts has its configuration`;
    const todo = `copy it and its kubeconfig ${below}, and set configuration_path in its ipam`;
    fields.note(field, `${why}: ${todo}`);
  } else if (!allowedPlugins.includes(type)) {
    fields.note(field, `the driver's pod has the files that ${type} reads on the node only if they are ${below}`);
  }
}
