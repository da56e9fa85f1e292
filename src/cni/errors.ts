import { type ErrorDetails, NetdraError } from '../errors.ts';

export type CniErrorCode =
  /** The configuration of a network or of an IPAM plugin is not what the CNI specification allows. */
  | 'cni-config-invalid'
  /** A container id, interface name, namespace path or argument that no plugin could be called with. */
  | 'cni-attachment-invalid'
  /** There is no program of the plugin's name where plugins are looked for, or it cannot be started. */
  | 'cni-plugin-missing'
  /** The plugin answered with an error, or ended with another exit code than 0, or was ended by a signal. */
  | 'cni-plugin-failed'
  /** The time was over before the plugin was done, or before it was its turn. */
  | 'cni-timeout'
  /** The plugin reported success, but what it printed is no CNI result that we understand. */
  | 'cni-output-invalid'
  /** The cache of attachments cannot be read or written. */
  | 'cni-cache-unusable';

/** What plugins are asked to do. */
export type CniCommand = 'ADD' | 'DEL';

export interface CniErrorDetails extends ErrorDetails {
  /** Name of the network. */
  network?: string | undefined;
  /** Type of the plugin: the name of its program. */
  plugin?: string | undefined;
  command?: CniCommand | undefined;
  /** The number that the plugin gave: see {@link hintForPluginCode}. */
  pluginCode?: number | undefined;
  /** The plugin's own words, the short and the long ones. */
  pluginMessage?: string | undefined;
  pluginDetails?: string | undefined;
  /** The end of what the plugin wrote to its standard error. */
  stderr?: string | undefined;
}

/** Whatever goes wrong with CNI networks and plugins. */
export class CniError extends NetdraError<CniErrorCode> {
  readonly network: string | undefined;
  readonly plugin: string | undefined;
  readonly command: CniCommand | undefined;
  readonly pluginCode: number | undefined;
  readonly pluginMessage: string | undefined;
  readonly pluginDetails: string | undefined;
  readonly stderr: string | undefined;

  constructor(code: CniErrorCode, message: string, details: CniErrorDetails = {}) {
    super(code, message, details);
    this.network = details.network;
    this.plugin = details.plugin;
    this.command = details.command;
    this.pluginCode = details.pluginCode;
    this.pluginMessage = details.pluginMessage;
    this.pluginDetails = details.pluginDetails;
    this.stderr = details.stderr;
  }
}

/** The plugin knows no such container: there is nothing that a DEL would have to clean up. */
export const unknownContainerCode = 3;

/** Source: CNI specification 1.1.0, section 5, "Error". From 100 on the numbers are the plugins' own. */
const pluginCodeHints: Record<number, string> = {
  1: 'set cniVersion to one that this plugin supports, or install a newer plugin',
  2: 'remove that field from the network configuration, or install a plugin that knows it',
  4: 'the plugin does not take what it was called with: check the interface name and the arguments',
  5: 'the plugin could not read or write: check space and permissions of its state directory',
  6: 'the plugin could not decode its configuration: compare the types of the fields with its documentation',
  7: 'correct the network configuration as the message says',
  11: 'it may pass: the plugin asks to be called again later',
  50: 'the plugin cannot serve now: check the daemon that it depends on',
  51: 'the plugin cannot serve now and its containers have limited connectivity: check the daemon that it depends on',
};
const transientPluginCodes = new Set([11, 50, 51]);

/** What to do about an error number of a plugin, if it is one that the specification gives a meaning. */
export function hintForPluginCode(code: number): string | undefined {
  return pluginCodeHints[code];
}

/** Whether the plugin says that the same call may succeed later. */
export function isTransientPluginCode(code: number): boolean {
  return transientPluginCodes.has(code);
}
