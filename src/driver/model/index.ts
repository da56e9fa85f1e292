export { type ClaimField, type ClosedField, claimFields, closedFields, fieldOf } from './claim-fields.ts';
export { DeviceProgress, type DeviceProgressOptions } from './device-progress.ts';
export type { DialectsConfig } from './dialects-config.ts';
export { DriverError, type DriverErrorCode } from './driver-error.ts';
export { invalidConfig, refusal } from './refusal.ts';
export { asOneError, SandboxError, type SandboxErrorCode } from './sandbox-error.ts';
export { StateError, type StateErrorCode } from './state-error.ts';
export {
  type Attachment,
  type ClaimDevices,
  type CreatedLink,
  groupOf,
  isUserSpace,
  type SandboxIdentity,
  type SandboxPlace,
  type StoredClaim,
  type StoredCondition,
  type StoredDevice,
  type UnrestoredVf,
  wasServedIn,
} from './stored.ts';
export {
  type AddressPoolConfig,
  type AttachMode,
  attachModes,
  type BondConfig,
  type CoalescingConfig,
  type DeviceFilesConfig,
  type EthtoolConfig,
  interfaceSettings,
  mergeVfConfigs,
  type OffloadSizes,
  type RouteConfig,
  type SlaacConfig,
  type VfConfig,
  type VfSettings,
  type VrfConfig,
} from './vf-config.ts';
