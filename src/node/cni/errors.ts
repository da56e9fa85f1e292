import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';

export type CniErrorCode =
  /** The configuration of a network or of an IPAM plugin breaks the CNI specification. */
  | 'cni-config-invalid'
  /** A container id, interface name, namespace path or argument cannot be passed to plugins. */
  | 'cni-attachment-invalid'
  /** The plugin's program is not in the directories that are searched, or it cannot be started. */
  | 'cni-plugin-missing'
  /** The plugin reported an error, ended with a non-zero exit code, or was ended by a signal. */
  | 'cni-plugin-failed'
  /** The deadline passed before the plugin had ended, or before its turn came. */
  | 'cni-timeout'
  /** The plugin reported success, but its output is not a CNI result that netdra can read. */
  | 'cni-output-invalid'
  /** The cache of attachments cannot be read or written. */
  | 'cni-cache-unusable';

/** CNI commands that netdra uses. */
export type CniCommand = 'ADD' | 'DEL';

export interface CniErrorDetails extends ErrorDetails {
  network?: string | undefined;
  /** Type of the plugin, which is the name of its executable. */
  plugin?: string | undefined;
  command?: CniCommand | undefined;
  /** Error code of the plugin: see {@link pluginCodeHints}. */
  pluginCode?: number | undefined;
  /** Messages of the plugin, short and long. */
  pluginMessage?: string | undefined;
  pluginDetails?: string | undefined;
  /** End of the plugin's standard error. */
  stderr?: string | undefined;
}

export class CniError extends NetdraError<CniErrorCode, CniErrorDetails> {
  declare readonly network: string | undefined;
  declare readonly plugin: string | undefined;
  declare readonly command: CniCommand | undefined;
  declare readonly pluginCode: number | undefined;
  declare readonly pluginMessage: string | undefined;
  declare readonly pluginDetails: string | undefined;
  declare readonly stderr: string | undefined;
}

/** Error code of a plugin for an unknown container: a DEL then has nothing to clean up. */
export const unknownContainerCode = 3;

/**
 * Remedies by error code of a plugin. Source: CNI specification 1.1.0, section 5, "Error". Codes from 100 on belong to the
 * plugins.
 */
export const pluginCodeHints: Readonly<Record<number, string>> = {
  1: 'set cniVersion to one that this plugin supports, or install a newer plugin',
  2: 'remove that field from the network configuration, or install a plugin that knows it',
  4: 'the plugin rejects its CNI environment variables: check the interface name and the arguments',
  5: 'the plugin could not read or write: check space and permissions of its state directory',
  6: 'the plugin could not decode its configuration: compare the types of the fields with its documentation',
  7: 'correct the network configuration as the message says',
  11: 'the failure may be temporary: the plugin asks to be called again later',
  50: 'the plugin cannot serve now: check the daemon that it depends on',
  51: 'the plugin cannot serve now and its containers have limited connectivity: check the daemon that it depends on',
};
/** Error codes with which a plugin says that the same call may succeed later. */
export const transientPluginCodes: readonly number[] = [11, 50, 51];
