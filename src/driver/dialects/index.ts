export type { DialectDevice } from './device.ts';
export { deviceInfoDir, deviceInfoFile } from './device-info.ts';
export { DialectFiles, type DialectRequest } from './dialect-files.ts';
export { findEnvConflicts, formatEnv, viewInDialects } from './dialects.ts';
export { sriovNetworkPodEnv } from './sriov-network.ts';
