import type { CniAttachment } from './attachment.ts';
import type { CniCommand } from './errors.ts';
import { type CniPluginConfig, fold } from './network.ts';
import { convertCniResult, type RawCniResult } from './result.ts';

/** Lower-case fields by which the plugin `host-device` selects its device. It accepts only one: with these, we add no address. */
const deviceSelectors = ['device', 'hwaddr', 'kernelpath', 'auxdevice'];
/** Folded fields that we set. Plugins match keys in any case, and the last one counts. */
const deviceKeys = ['deviceid', 'pcibusid'];

/**
 * Formats the standard input of a plugin.
 * Source: CNI specification 1.1.0, section 3, "Deriving request configuration from plugin configuration".
 */
export function formatRequest(
  plugin: CniPluginConfig,
  { network, deviceId, capabilities = {} }: CniAttachment,
  prevResult?: RawCniResult,
): string {
  const { name, cniVersion } = network;
  const available = deviceId === undefined ? capabilities : { ...capabilities, deviceID: deviceId };
  const runtimeConfig = Object.fromEntries(
    Object.entries(available).filter(([capability]) => plugin.capabilities?.[capability] === true),
  );
  const isOurs = (key: string) => deviceId !== undefined && deviceKeys.includes(fold(key));
  return JSON.stringify({
    ...Object.fromEntries(Object.entries(plugin).filter(([key]) => !isOurs(key))),
    name,
    cniVersion,
    ...deviceFields(plugin, deviceId),
    ...(Object.keys(runtimeConfig).length === 0 ? {} : { runtimeConfig }),
    ...(prevResult === undefined ? {} : { prevResult: convertCniResult(prevResult, cniVersion) }),
  });
}

/**
 * Returns the device's fields as Multus sets them, so that configurations written for it work: sriov reads `deviceID`,
 * host-device `pciBusID`.
 */
function deviceFields(plugin: CniPluginConfig, deviceId: string | undefined): Record<string, string> {
  if (deviceId === undefined) return {};
  const isSelected = Object.entries(plugin).some(
    ([key, value]) => value !== null && value !== '' && deviceSelectors.includes(fold(key)),
  );
  return isSelected ? { deviceID: deviceId } : { deviceID: deviceId, pciBusID: deviceId };
}

/** What a plugin needs besides its configuration. */
interface EnvironmentOptions {
  command: CniCommand;
  netnsPath: string;
  binDirs: readonly string[];
  searchPath: string;
}

/** Creates a plugin's whole environment, so that our own does not leak into it. */
export function createEnvironment(attachment: CniAttachment, options: EnvironmentOptions): Record<string, string> {
  return {
    PATH: options.searchPath,
    CNI_COMMAND: options.command,
    CNI_CONTAINERID: attachment.containerId,
    CNI_NETNS: options.netnsPath,
    CNI_IFNAME: attachment.ifName,
    CNI_ARGS: formatArgs(attachment.args ?? {}),
    CNI_PATH: options.binDirs.join(':'),
  };
}

/** Formats `CNI_ARGS`. Many plugins reject unknown arguments unless IgnoreUnknown is set. */
function formatArgs(args: Record<string, string>): string {
  const entries = Object.entries(args);
  if (entries.length === 0) return '';
  return Object.entries({ IgnoreUnknown: '1', ...args })
    .map(([key, value]) => `${key}=${value}`)
    .join(';');
}
