export { type MetadataVersion, metadataVersions } from './document/codec.ts';
export { type DecodedMetadata, decodeMetadata, decodeStream } from './document/decode.ts';
export {
  type DeviceKey,
  type DeviceName,
  findDevice,
  formatDeviceKey,
  isSameDevice,
  parseDeviceKey,
} from './document/device-key.ts';
export {
  baseRequest,
  type ClaimIdentity,
  type ClaimName,
  claimName,
  type DeviceAttribute,
  type DeviceAttributes,
  type DeviceMetadata,
  type MetadataDocument,
  type NetworkDeviceData,
} from './document/document.ts';
export { limits as attributeLimits, validateDevices } from './document/validate.ts';
export { MetadataError, type MetadataErrorCode } from './errors.ts';
export { CdiSpecs, type ContainerEdits } from './files/cdi.ts';
export { type ClaimMetadataOptions, readLayoutsInUse } from './files/claim-dirs.ts';
export { ClaimMetadata, type MetadataUpdate } from './files/claim-metadata.ts';
export type {
  ClaimRecord,
  PreparedContent,
  PreparedRecord,
  RequestRecord,
  UnpreparedRecord,
} from './files/claim-record.ts';
export { type ClaimRecords, RecordFiles } from './files/claim-records.ts';
export { type InspectedClaim, type InspectedFile, inspectClaim } from './files/inspect-claim.ts';
export type { Gate, GateHook } from './gate/gate.ts';
export type { WaitingSandbox } from './gate/waiting-sandbox.ts';
export {
  defaultHostDirs,
  type HostDirs,
  type Layout,
  type LayoutName,
  layoutNames,
  type PublishedDevice,
  type RequestContent,
  type RequestPlace,
} from './layouts/layout.ts';
export { layouts } from './layouts/layouts.ts';
export { claimDirName, claimKey } from './layouts/paths.ts';
export { readMetadata, readMetadataFile } from './reader/reader.ts';
export {
  listRequests,
  type ReaderOptions,
  type RequestMetadata,
  type RequestQuery,
  readRequestMetadata,
} from './reader/request-reader.ts';
export { type WatchOptions, watchRequestMetadata } from './reader/watch.ts';
