export { type DialectsConfig, dialectsSchema } from './config.ts';
export type { DialectDevice, Env } from './device.ts';
export {
  type DeviceInfoFile,
  deviceInfoDir,
  deviceInfoFile,
  deviceInfoFileName,
  deviceInfoMode,
} from './device-info.ts';
export { DeviceInfoFiles } from './device-info-files.ts';
export { devicePluginEnv, devicePluginVariable } from './device-plugin.ts';
export { DialectFiles, type DialectRequest } from './dialect-files.ts';
export { type DialectView, findEnvConflicts, formatEnv, viewInDialects } from './dialects.ts';
export { sriovNetworkEnv, sriovNetworkPodEnv } from './sriov-network.ts';
