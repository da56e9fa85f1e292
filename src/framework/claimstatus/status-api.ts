import type { JsonPatchOperation, ResourceApi, ResourceClaim } from '../kube/index.ts';
import type { ClaimIdentity } from '../metadata/index.ts';

/** Access to claim status in the API server. */
export interface ClaimStatusApi {
  /** @throws KubeError `api-not-found`, … */
  read(claim: ClaimIdentity, signal: AbortSignal): Promise<ResourceClaim>;
  /**
   * Changes the status of a claim.
   * @returns the claim after the change
   * @throws KubeError `api-conflict` if the claim is not at the version that the patch is for; `api-invalid` if the
   * patch does not fit the claim, which a different version can cause, too
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
