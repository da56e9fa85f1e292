import { NetdraError } from '../errors.ts';

export type KubeletPluginErrorCode =
  /** The helper cannot be started with what it was given. */
  | 'invalid-options'
  /** A claim that the kubelet asked for cannot be had, is not allocated or reserved, or is another one by now. */
  | 'claim-unavailable'
  /** The driver gave an answer that breaks its contract. */
  | 'driver-contract'
  /** What the driver says of the health of its devices cannot be told to the kubelet. */
  | 'health-invalid'
  /** A call took too long, its caller has gone, or we are stopping. */
  | 'call-aborted'
  /** The lock that instances of a driver share cannot be had. */
  | 'lock-unavailable'
  /** The kubelet does not take the driver. */
  | 'registration-refused'
  /** A socket cannot be opened. */
  | 'socket-unavailable';

/** Whatever the framework itself finds wrong; drivers raise errors of their own. */
export class KubeletPluginError extends NetdraError<KubeletPluginErrorCode> {}
