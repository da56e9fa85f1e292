export { DeviceResolver, type Inventory } from './device-resolver.ts';
export { Driver, type VfCarrier, type VfControl } from './driver.ts';
export { DriverError } from './errors.ts';
export { createKubeNetworkAttachmentReader } from './kube-network-attachment-reader.ts';
export type { NetworkAttachmentDefinition, NetworkAttachmentReader } from './network-attachments.ts';
export { type PrivilegedField, privilegedFields } from './privileges.ts';
export { type Attachment, Store, type StoredClaim, type StoredDevice } from './store.ts';
export { type VfConfig, vfConfigSchema } from './vf-config.ts';
export { isUserSpace } from './vf-wanted.ts';
