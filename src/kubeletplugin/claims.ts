import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import type { ClaimIdentity } from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';
import type { AllocatedClaim } from './plugin.ts';

/** The one thing that the framework asks of the API server for claims. */
export interface ClaimReader {
  /** @throws whatever the API client throws, 404 included */
  readClaim(namespace: string, name: string, signal: AbortSignal): Promise<ResourceV1ResourceClaim>;
}

const podClaimNameAnnotation = 'resource.kubernetes.io/pod-claim-name';

/**
 * Fetches the claims of one kubelet call, all at once, and checks each. As with the Go helper any failure fails the
 * whole call, with the same texts: the kubelet tries again with all of them.
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
  const subject = `${claim.namespace}/${claim.name}`;
  let object: ResourceV1ResourceClaim;
  try {
    object = await reader.readClaim(claim.namespace, claim.name, signal);
  } catch (cause) {
    throw new KubeletPluginError('claim-unavailable', `retrieve claim ${subject}`, {
      cause,
      claim: subject,
      retriable: true,
    });
  }
  if (object.status?.allocation === undefined) {
    throw new KubeletPluginError('claim-unavailable', `claim ${subject} not allocated`, { claim: subject });
  }
  if (object.metadata?.uid !== claim.uid) {
    throw new KubeletPluginError('claim-unavailable', `claim ${subject} got replaced`, { claim: subject });
  }
  return {
    identity: claim,
    podClaimName: object.metadata.annotations?.[podClaimNameAnnotation],
    results: object.status.allocation.devices?.results ?? [],
    podUids: (object.status.reservedFor ?? []).filter(({ resource }) => resource === 'pods').map(({ uid }) => uid),
    object,
  };
}
