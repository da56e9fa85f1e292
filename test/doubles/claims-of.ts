import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import type { ApiServer } from './api-server.ts';
import type { KubeletOptions } from './kubelet.ts';

/** Answers a kubelet's requests for claims from this API server. */
export function claimsOf(api: ApiServer): KubeletOptions['getClaim'] {
  return async (namespace, name) => {
    const claim = api.get<ResourceV1ResourceClaim>('ResourceClaim', name, namespace);
    if (claim === undefined) throw new Error(`resourceclaims.resource.k8s.io "${name}" not found`);
    return claim;
  };
}
