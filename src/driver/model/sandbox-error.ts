import { explain, NetdraError } from '../../lib/errors.ts';

export type SandboxErrorCode =
  /** The pod shares the host's network, where no VF can be moved to. */
  | 'host-network'
  /** The pod's network namespace does not exist. */
  | 'netns-missing'
  /** The runtime lists the sandbox without its namespaces. */
  | 'netns-unknown'
  /** The VF is neither in the host's network namespace nor in the pod's. */
  | 'vf-missing'
  /** The VF was attached to the pod, and is no longer in its network namespace. */
  | 'vf-left'
  /** No router has given the VF a usable address, which its claim waits for. */
  | 'no-router-address'
  /** The kernel does not say which device a link of the pod belongs to, so that the VF may be one of them. */
  | 'vf-unknown'
  /** The VF is in the sandbox of another pod. */
  | 'vf-busy'
  /** Another interface of the pod has the name of the VF, or of its bond. */
  | 'interface-name-taken'
  /** The VF cannot become a member of its bond. */
  | 'bond-refused'
  /** The VF cannot become a member of its VRF. */
  | 'vrf-refused'
  /** Some properties of the VF could not be restored after it was detached. */
  | 'restore-incomplete'
  /** A container would start with a claim that is not ready in its sandbox. */
  | 'not-ready'
  /** A container would start with CPUs or memory on other NUMA nodes than its devices, which its claim refuses. */
  | 'numa-mismatch'
  /** It is not known on which NUMA nodes a container or its devices would be, and its claim requires the same. */
  | 'numa-unknown'
  /** Several claims of a pod, VFs of a claim or requests have failed, each for its own reason. */
  | 'several-failures';

/** A VF cannot be attached to its pod, or not be restored on the host. */
export class SandboxError extends NetdraError<SandboxErrorCode> {}

/**
 * Combines independent errors into one. Returns a single one, also a repeated one, unchanged.
 * @param texts a text for each error, in the same order; default: its explanation
 */
export function asOneError(errors: readonly unknown[], texts: readonly string[] = errors.map(explain)): unknown {
  if (new Set(errors).size <= 1) return errors[0];
  const message = texts.join('; ');
  const retriable = errors.every((error) => error instanceof NetdraError && error.retriable);
  return new SandboxError('several-failures', message, { cause: new AggregateError(errors, message), retriable });
}
