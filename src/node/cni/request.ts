import type { CniAttachment } from './attachment.ts';
import type { CniCommand } from './errors.ts';
import { type CniPluginConfig, fold } from './network.ts';
import { convertCniResult, type RawCniResult } from './result.ts';

/**
 * Fields, in lower case, by which the plugin `host-device` selects its device. It accepts only one of them, so netdra adds no
 * address if one is set.
 */
const deviceSelectors = ['device', 'hwaddr', 'kernelpath', 'auxdevice'];
/**
 * Fields, in lower case, that netdra sets. Configured ones are removed: plugins match keys in any case, and the last one
 * counts.
 */
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
 * Returns the fields that name the device, as Multus sets them: sriov reads `deviceID`, host-device `pciBusID`. So
 * configurations that were written for Multus work.
 */
function deviceFields(plugin: CniPluginConfig, deviceId: string | undefined): Record<string, string> {
  if (deviceId === undefined) return {};
  const isSelected = Object.entries(plugin).some(
    ([key, value]) => value !== null && value !== '' && deviceSelectors.includes(fold(key)),
  );
  return isSelected ? { deviceID: deviceId } : { deviceID: deviceId, pciBusID: deviceId };
}

/** Values for a plugin's environment. */
interface EnvironmentOptions {
  command: CniCommand;
  netnsPath: string;
  binDirs: readonly string[];
  searchPath: string;
}

/** Returns a plugin's whole environment, so that the driver's own environment does not leak into it. */
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

/** Formats `CNI_ARGS`. Sets IgnoreUnknown, since many plugins otherwise reject unknown arguments. */
function formatArgs(args: Record<string, string>): string {
  const entries = Object.entries(args);
  if (entries.length === 0) return '';
  return Object.entries({ IgnoreUnknown: '1', ...args })
    .map(([key, value]) => `${key}=${value}`)
    .join(';');
}
