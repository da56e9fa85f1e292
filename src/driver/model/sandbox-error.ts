import { explain, NetdraError } from '../../lib/errors.ts';

export type SandboxErrorCode =
  /** The pod shares the host's network namespace, so no VF can be moved into it. */
  | 'host-network'
  /** The pod's network namespace does not exist. */
  | 'netns-missing'
  /** The runtime lists the sandbox without its namespaces. */
  | 'netns-unknown'
  /** The VF is neither in the host's network namespace nor in the pod's. */
  | 'vf-missing'
  /** The VF was attached to the pod, and is no longer in its network namespace. */
  | 'vf-left'
  /** The claim waits for an address from a router, and no router has given the VF a usable one. */
  | 'no-router-address'
  /** The kernel does not say which device a link of the pod belongs to, so the link may be the VF's. */
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
  /** The driver refused a container whose claim is not ready in the pod's sandbox. */
  | 'not-ready'
  /** A container's CPUs or memory would be on other NUMA nodes than its devices, and its claim requires the same nodes. */
  | 'numa-mismatch'
  /** The NUMA nodes of a container or its devices are unknown, and its claim requires the same nodes. */
  | 'numa-unknown'
  /** Several claims of a pod, VFs of a claim, or requests of a claim have failed, each with an error of its own. */
  | 'several-failures';

/** Error of a sandbox: a VF cannot be attached or restored, or a container must not start. */
export class SandboxError extends NetdraError<SandboxErrorCode> {}

/**
 * Combines independent errors into one error. If all are the same object, returns that error unchanged.
 * @param texts a text for each error, in the same order; default: its explanation
 */
export function asOneError(errors: readonly unknown[], texts: readonly string[] = errors.map(explain)): unknown {
  if (new Set(errors).size <= 1) return errors[0];
  const message = texts.join('; ');
  const retriable = errors.every((error) => error instanceof NetdraError && error.retriable);
  return new SandboxError('several-failures', message, { cause: new AggregateError(errors, message), retriable });
}
