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
  /** Some properties of the VF could not be restored after it was detached. */
  | 'restore-incomplete'
  /** A container would start with a claim that is not ready in its sandbox. */
  | 'not-ready';

/** A VF cannot be attached to its pod, or not be restored on the host. */
export class SandboxError extends NetdraError<SandboxErrorCode> {}
