import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';
import { isKubeError } from '../kube/index.ts';

/** Failures to write the status of a claim. */
export type ClaimStatusErrorCode =
  /** The driver's role may not write the claim's status. */
  | 'status-forbidden'
  /** The API server considers the status, or the rest of the claim, invalid. */
  | 'status-invalid'
  /** The API server accepted the status and did not store it: its feature gate is off. */
  | 'status-dropped'
  /** The claim's status cannot be written, for another reason. */
  | 'status-failed';

/** A failure to show the state of devices in their claim's status. The pod runs regardless. */
export class ClaimStatusError extends NetdraError<ClaimStatusErrorCode> {}

/** Converts a failure to write a claim's status into an error with a hint. @param claim `namespace/name` */
export function toStatusError(cause: unknown, claim: string, driver: string): ClaimStatusError {
  if (cause instanceof ClaimStatusError) return cause;
  const message = `status of claim ${claim} cannot be written`;
  const fail = (code: ClaimStatusErrorCode, more: ErrorDetails) =>
    new ClaimStatusError(code, message, { cause, claim, ...more });
  if (isKubeError(cause, 'api-forbidden')) {
    const rule = '{apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [patch]}';
    return fail('status-forbidden', { hint: `add to the role of the driver: ${rule}` });
  }
  // Kubernetes 1.36 and newer check that a driver changes only its own entries, and answer as if the object were invalid.
  const isDriverRefused = isKubeError(cause, 'api-invalid') && cause.message.includes('resourceclaims/driver');
  if (isDriverRefused && cause.message.includes(`"${driver}"`)) {
    const rule = `{apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], verbs: ["associated-node:patch"], resourceNames: [${driver}]}`;
    const hint = `add to the role of the driver: ${rule}; its token must be that of a pod on the claim's node`;
    return fail('status-forbidden', { hint });
  }
  // A patch makes the API server re-encode the whole claim. If a client sent the claim in a form other than Go's, the
  // re-encoding counts as a change of the allocation or of another driver's entry.
  if (isDriverRefused || (isKubeError(cause, 'api-invalid') && cause.message.includes('status.allocation'))) {
    const [part, json] = isDriverRefused ? ['the entry of another driver', 'data'] : ['its allocation', 'parameters'];
    const what = `the API server considers ${part} changed, since the stored ${json} are encoded in another way`;
    const hint = `${json} must be sent in compact JSON, without blanks outside of texts and without <, > and &, as kubectl does`;
    return new ClaimStatusError('status-invalid', `${message}: ${what}`, { claim, hint });
  }
  if (isKubeError(cause, 'api-invalid')) return fail('status-invalid', {});
  return fail('status-failed', { retriable: true });
}
