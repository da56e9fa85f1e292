import { NetdraError } from '../../lib/errors.ts';

export type KubeletPluginErrorCode =
  /** `startKubeletPlugin` refuses its options. */
  | 'invalid-options'
  /** A claim of the kubelet's call cannot be read, is not allocated or reserved, or has been replaced. */
  | 'claim-unavailable'
  /** The driver returned an answer that violates its contract. */
  | 'driver-contract'
  /** The health that the driver reports for its devices cannot be passed on to the kubelet. */
  | 'health-invalid'
  /** A kubelet call took too long, its caller is gone, or the driver is stopping. */
  | 'call-aborted'
  /** The lock that instances of a driver share cannot be acquired. */
  | 'lock-unavailable'
  /** The kubelet does not accept the driver. */
  | 'registration-refused'
  /** A socket for the kubelet cannot be opened. */
  | 'socket-unavailable';

/** Errors of the framework itself; drivers raise errors of their own. */
export class KubeletPluginError extends NetdraError<KubeletPluginErrorCode> {}
