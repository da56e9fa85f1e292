import { NetdraError } from '../errors.ts';

export type SandboxErrorCode =
  /** The pod shares the host's network, where no VF can be moved to. */
  | 'host-network'
  /** The VF is neither in the host's network namespace nor where it was last. */
  | 'vf-missing'
  /** The VF is in the sandbox of another pod. */
  | 'vf-busy'
  /** The pod lives in another sandbox by now. */
  | 'sandbox-over'
  /** A container would mount metadata of a claim whose VFs are not in its sandbox. */
  | 'not-served'
  /** The work did not end within what the runtime allows for the hook. */
  | 'hook-timeout';

/** Why a VF is not in its pod, or the pod's metadata not written. */
export class SandboxError extends NetdraError<SandboxErrorCode> {}
