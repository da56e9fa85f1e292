import { NetdraError } from '../../lib/errors.ts';

export type StateErrorCode =
  /** The device is prepared for another claim. */
  | 'device-in-use'
  /** The device could not be restored after its last claim. */
  | 'device-unrestored'
  /** The state store cannot be read or written. */
  | 'store-unusable'
  /** The driver cannot take the lock that excludes other instances of the driver. */
  | 'lock-unavailable';

/** Error of the state store or its locks. */
export class StateError extends NetdraError<StateErrorCode> {}
