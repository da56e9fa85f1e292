export { CdiSpecs, type ContainerEdits } from './cdi.ts';
export { ClaimMetadata, type ClaimMetadataOptions, type PreparedContent } from './claim-metadata.ts';
export type { ClaimRecord, DeviceName, RequestRecord } from './claim-record.ts';
export { decodeStream, type MetadataVersion, metadataVersions } from './codec.ts';
export {
  baseRequest,
  type ClaimIdentity,
  type DeviceAttribute,
  type DeviceAttributes,
  type DeviceMetadata,
  type MetadataDocument,
  type NetworkDeviceData,
} from './document.ts';
export { MetadataError, type MetadataErrorCode } from './errors.ts';
export { type Layout, type LayoutName, layoutNames, layouts } from './layout.ts';
export { readMetadataFile } from './reader.ts';
