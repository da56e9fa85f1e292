import type { JsonPatchOperation, ResourceApi, ResourceClaim } from '../kube/index.ts';
import type { ClaimIdentity } from '../metadata/index.ts';

/** The API server's side of claim status. */
export interface ClaimStatusApi {
  /** @throws KubeError `api-not-found`, … */
  read(claim: ClaimIdentity, signal: AbortSignal): Promise<ResourceClaim>;
  /**
   * Changes the status of a claim.
   * @returns the claim as it is then
   * @throws KubeError `api-conflict` if the claim is not in the version that the patch is for; `api-invalid` if the patch
   * does not fit it, which another version is a reason for, too
   */
  patch(claim: ClaimIdentity, patch: JsonPatchOperation[], signal: AbortSignal): Promise<ResourceClaim>;
}

export function createClaimStatusApi(resources: ResourceApi): ClaimStatusApi {
  return {
    read: ({ namespace, name }, signal) => resources.readClaim(namespace, name, signal),
    patch: ({ namespace, name }, patch, signal) =>
      resources.request<ResourceClaim>({
        method: 'PATCH',
        path: `namespaces/${namespace}/resourceclaims/${name}/status`,
        contentType: 'application/json-patch+json',
        body: patch,
        signal,
      }),
  };
}
