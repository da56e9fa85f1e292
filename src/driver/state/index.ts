export { kubernetesName, network, type VfConfig, vfConfigSchema } from '../api/vf-config.ts';
export { StateError } from '../model/state-error.ts';
export {
  type Attachment,
  isUserSpace,
  type SandboxPlace,
  type StoredClaim,
  type StoredCondition,
  type StoredDevice,
  type UnrestoredVf,
} from '../model/stored.ts';
export { Store, type StoreOptions } from './store.ts';
export { type Database, schemaVersion } from './store-schema.ts';
export { StoredRecords } from './stored-records.ts';
