import { NetdraError } from '../errors.ts';

export type SandboxErrorCode =
  /** The pod shares the host's network, where no VF can be moved to. */
  | 'host-network'
  /** The pod's network namespace does not exist. */
  | 'netns-missing'
  /** The runtime lists the sandbox without its namespaces. */
  | 'netns-unknown'
  /** The VF is neither in the host's network namespace nor in the pod's. */
  | 'vf-missing'
  /** The VF is in the sandbox of another pod. */
  | 'vf-busy'
  /** Properties of the VF are not what they were before it was attached. */
  | 'restore-incomplete'
  /** A container would start with a claim that is not ready in its sandbox. */
  | 'not-ready';

/** Why a VF is not in its pod, or not back on the host. */
export class SandboxError extends NetdraError<SandboxErrorCode> {}
