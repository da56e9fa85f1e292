import { NetdraError } from '../errors.ts';

export type KubeletPluginErrorCode =
  /** A claim that the kubelet asked for cannot be had, is not allocated, or is another one by now. */
  | 'claim-unavailable'
  /** The driver gave an answer that breaks its contract. */
  | 'driver-contract'
  /** A socket cannot be opened. */
  | 'socket-unavailable';

/** Whatever the framework itself finds wrong; drivers raise errors of their own. */
export class KubeletPluginError extends NetdraError<KubeletPluginErrorCode> {}
