import { NetdraError } from '../errors.ts';

export type DriverErrorCode =
  /** The claim's opaque parameters are not a valid VFConfig. */
  | 'config-invalid'
  /** The allocation names a device that this node has not. */
  | 'device-unknown'
  /** The device is prepared for another claim. */
  | 'device-in-use'
  /** The claim is reserved for several pods, which its devices cannot serve. */
  | 'claim-shared'
  /** Several devices of a claim cannot be made what they were; the message has the reasons. */
  | 'device-not-returned'
  /** The NetworkAttachmentDefinition that the config names is missing, may not be read, or has no configuration. */
  | 'network-attachment-unusable'
  /** The state store cannot be read or written. */
  | 'store-unusable';

/** Why a claim cannot be prepared or unprepared. */
export class DriverError extends NetdraError<DriverErrorCode> {}
