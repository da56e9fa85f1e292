export { checkAllocation } from './allocation-check.ts';
export { DeviceClasses } from './device-classes.ts';
export { type DeviceFinder, DeviceResolver } from './device-resolver.ts';
export { Driver } from './driver.ts';
export { createKubeNamespaceReader, createKubeNetworkAttachmentReader } from './kube-readers.ts';
export type { NetworkAttachmentDefinition, NetworkAttachmentReader } from './network-attachments.ts';
export { fingerprintOf } from './prepare-work.ts';
