export { CdiSpecs, type ContainerEdits } from './cdi.ts';
export type { ClaimDir } from './claim-dirs.ts';
export { ClaimMetadata, type ClaimMetadataOptions, type MetadataUpdate } from './claim-metadata.ts';
export type { ClaimRecord, DeviceName, PreparedContent, RequestRecord } from './claim-record.ts';
export { readLayoutsInUse } from './claim-state.ts';
export { type MetadataVersion, metadataVersions } from './codec.ts';
export { type DecodedMetadata, decodeMetadata, decodeStream } from './decode.ts';
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
export type { Gate, GateHook } from './gate.ts';
export { type InspectedClaim, type InspectedFile, inspectClaim } from './inspect-claim.ts';
export {
  defaultHostDirs,
  type HostDirs,
  type Layout,
  type LayoutName,
  layoutNames,
  type PublishedDevice,
  type RequestContent,
  type RequestPlace,
} from './layout.ts';
export { layouts } from './layouts.ts';
export { claimDirName } from './paths.ts';
export { readMetadata, readMetadataFile } from './reader.ts';
export {
  listRequests,
  type ReaderOptions,
  type RequestMetadata,
  type RequestQuery,
  readRequestMetadata,
} from './request-reader.ts';
export { validateDevices } from './validate.ts';
export type { WaitingSandbox } from './waiting-sandbox.ts';
export { type WatchOptions, watchRequestMetadata } from './watch.ts';
