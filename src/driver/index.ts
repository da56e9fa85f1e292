export { AllocationCheck } from './allocation-check.ts';
export { type ClaimField, type ClosedField, claimFields, closedFields } from './claim-fields.ts';
export { DeviceResolver, type Inventory } from './device-resolver.ts';
export { Driver, restoreVf, type VfControl, type VfDetacher } from './driver.ts';
export { DriverError } from './errors.ts';
export { createKubeNamespaceReader } from './kube-namespace-reader.ts';
export { createKubeNetworkAttachmentReader } from './kube-network-attachment-reader.ts';
export type { NamespaceReader } from './namespace-rules.ts';
export type { NetworkAttachmentDefinition, NetworkAttachmentReader } from './network-attachments.ts';
