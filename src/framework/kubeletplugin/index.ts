/** The framework for DRA drivers: everything between a driver and the kubelet. See docs/driver-authors.md. */

export { type Clock, type Deadline, systemClock } from '../../lib/clock.ts';
export { explain, NetdraError } from '../../lib/errors.ts';
export type { FileMutex } from '../../lib/file-mutex.ts';
export { KeyedMutex, type Locks } from '../../lib/keyed-mutex.ts';
export type { Logger } from '../../lib/logger.ts';
// A ResourceApi is a ClaimReader.
export {
  type AllocatedDevice,
  type ApiAccess,
  KubeClient,
  type KubeClientOptions,
  openApiAccess,
  ResourceApi,
} from '../kube/index.ts';
export { GateError, type GateErrorCode, installGate } from '../metadata/gate/index.ts';
export type { ClaimIdentity, DeviceMetadata } from '../metadata/index.ts';
export type { ClaimReader } from './claims.ts';
export { deviceMetadataFlag } from './device-metadata-flag.ts';
export { KubeletPluginError, type KubeletPluginErrorCode } from './errors.ts';
export { type DeviceHealth, type HealthState, healthStates } from './health.ts';
export {
  type KubeletPluginHelper,
  type KubeletPluginOptions,
  type MetadataUpdater,
  type StartGate,
  startKubeletPlugin,
} from './helper.ts';
export { openFileMutex } from './instance-locks.ts';
export type {
  AllocatedClaim,
  ClaimObject,
  DraPlugin,
  LastStep,
  PreparedClaim,
  PreparedDevice,
  PreparedMetadata,
  PrepareResult,
  UnpreparedClaim,
  UnprepareResult,
} from './plugin.ts';
export type { RegistrationStatus } from './registration.ts';
export type { SocketPaths } from './socket-paths.ts';
