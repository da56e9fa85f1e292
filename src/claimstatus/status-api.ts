import type { AllocatedDeviceStatus, ResourceApi, ResourceClaim } from '../kube/index.ts';
import type { ClaimIdentity } from '../metadata/index.ts';

/** The API server's side of claim status. */
export interface ClaimStatusApi {
  /** @throws KubeError `api-not-found`, … */
  read(claim: ClaimIdentity, signal: AbortSignal): Promise<ResourceClaim>;
  /**
   * Makes these the driver's entries of `status.devices`, and no others; those of other drivers stay.
   * @returns the claim as it is then
   * @throws KubeError `api-conflict` if the claim of that name has another UID
   */
  apply(claim: ClaimIdentity, devices: AllocatedDeviceStatus[], signal: AbortSignal): Promise<ResourceClaim>;
}

/**
 * By server-side apply.
 * @param driver its name is the field manager: two drivers under one name would take away each other's entries
 */
export function createClaimStatusApi(resources: ResourceApi, driver: string): ClaimStatusApi {
  return {
    read: ({ namespace, name }, signal) => resources.readClaim(namespace, name, signal),
    apply: ({ namespace, name, uid }, devices, signal) =>
      resources.request<ResourceClaim>({
        method: 'PATCH',
        path: `namespaces/${namespace}/resourceclaims/${name}/status`,
        // The entries are ours, whoever wrote them before.
        query: { fieldManager: driver, force: 'true' },
        contentType: 'application/apply-patch+yaml',
        body: {
          kind: 'ResourceClaim',
          metadata: { namespace, name, uid },
          // What is not applied any more is removed; an empty list would stay as a field of ours.
          ...(devices.length === 0 ? {} : { status: { devices } }),
        },
        signal,
      }),
  };
}
