import { NetdraError } from '../../lib/errors.ts';

export type StateErrorCode =
  /** The device is prepared for another claim. */
  | 'device-in-use'
  /** The device could not be restored after its last claim. */
  | 'device-unrestored'
  /** The state store cannot be read or written. */
  | 'store-unusable'
  /** The lock that keeps two instances of the driver apart cannot be taken. */
  | 'lock-unavailable';

/** Why something cannot be stored or read. */
export class StateError extends NetdraError<StateErrorCode> {}
