export { kubernetesName, network, type VfConfig, vfConfigSchema } from '../api/vf-config.ts';
export { ClaimLocks, type Locks } from './claim-locks.ts';
export { StateError } from './errors.ts';
export {
  type Attachment,
  isUserSpace,
  type SandboxPlace,
  Store,
  type StoredClaim,
  type StoredDevice,
  type StoreOptions,
  type UnrestoredVf,
} from './store.ts';
export type { Database } from './store-schema.ts';
