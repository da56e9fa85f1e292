import type { ErrorDetails } from '../../lib/errors.ts';
import { type ClaimIdentity, claimName } from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';
import type { AllocatedClaim, ClaimObject } from './plugin.ts';

/** The only call to the API server that the framework needs for claims; `ResourceApi` of `src/framework/kube` implements it. */
export interface ClaimReader {
  /**
   * The claim in the shape of resource.k8s.io/v1, whatever version the cluster serves. Not from a cache.
   * @throws whatever the API client throws, 404 included
   */
  readClaim(namespace: string, name: string, signal: AbortSignal): Promise<ClaimObject>;
}

const podClaimNameAnnotation = 'resource.kubernetes.io/pod-claim-name';

/**
 * Fetches the claims of one kubelet call concurrently and checks each. As in the Go helper, any failure fails the whole
 * call, with the same texts, and the kubelet retries all of them. A claim that is being deleted is still accepted:
 * while it is reserved for a pod, its allocation stays.
 * @throws KubeletPluginError `claim-unavailable`
 */
export async function fetchClaims(
  reader: ClaimReader,
  claims: ClaimIdentity[],
  signal: AbortSignal,
): Promise<AllocatedClaim[]> {
  return await Promise.all(claims.map((claim) => fetchClaim(reader, claim, signal)));
}

async function fetchClaim(reader: ClaimReader, claim: ClaimIdentity, signal: AbortSignal): Promise<AllocatedClaim> {
  const subject = claimName(claim);
  const refuse = (message: string, more: ErrorDetails = {}) =>
    new KubeletPluginError('claim-unavailable', message, { claim: subject, ...more });
  const object = await reader.readClaim(claim.namespace, claim.name, signal).catch((cause) => {
    throw refuse(`retrieve claim ${subject}`, { cause, retriable: true });
  });
  if (object.status?.allocation === undefined) throw refuse(`claim ${subject} not allocated`);
  if (object.metadata?.uid !== claim.uid) throw refuse(`claim ${subject} got replaced`);
  const consumers = object.status.reservedFor ?? [];
  // The kubelet checks this too, but earlier. Devices of an unreserved claim may go to another claim at any time.
  if (consumers.length === 0) throw refuse(`claim ${subject} is not reserved for any pod`);
  return {
    identity: claim,
    podClaimName: object.metadata.annotations?.[podClaimNameAnnotation],
    results: object.status.allocation.devices?.results ?? [],
    podUids: consumers.filter(({ resource }) => resource === 'pods').map(({ uid }) => uid),
    object,
  };
}
