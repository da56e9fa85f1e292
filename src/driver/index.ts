export { DeviceResolver, type Inventory } from './device-resolver.ts';
export { Driver, restoreVf, type VfControl, type VfDetacher } from './driver.ts';
export { DriverError } from './errors.ts';
export { createKubeNetworkAttachmentReader } from './kube-network-attachment-reader.ts';
export type { NetworkAttachmentDefinition, NetworkAttachmentReader } from './network-attachments.ts';
export { type PrivilegedField, privilegedFields } from './privileges.ts';
