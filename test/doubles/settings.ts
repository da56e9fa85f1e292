import { flagNames, flagOption, type Settings } from '../../src/instance/settings.ts';

/** The settings of flags that are not given, but for device metadata, which the Helm chart switches on. */
export function defaultSettings(): Omit<Settings, 'nodeName'> {
  const defaults = flagNames.map((name) => [name, flagOption(name).defaultValue]);
  return { ...Object.fromEntries(defaults.filter(([, value]) => value !== undefined)), enableDeviceMetadata: true };
}
