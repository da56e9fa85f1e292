import { isKubeError } from './errors.ts';
import type { KubeRequests } from './kube-client.ts';

/**
 * Reads the resources that the API server serves in a group. Every account has the permission for this.
 * @param groupVersion group and version, such as `netdra.dev/v1alpha1`
 * @returns verbs of each resource, by its plural name; empty if the group or version is not served. A resource whose definition
 * is being deleted has no `create`. Source: apiextensions-apiserver, `DiscoveryController.sync`
 * @throws KubeError
 */
export async function servedVerbs(
  kube: KubeRequests,
  groupVersion: string,
  options: { signal?: AbortSignal } = {},
): Promise<Map<string, readonly string[]>> {
  try {
    const path = `/apis/${groupVersion}`;
    const { resources } = await kube.request<{ resources: { name: string; verbs: string[] }[] }>({
      method: 'GET',
      path,
      ...options,
    });
    return new Map(resources.map(({ name, verbs }) => [name, verbs]));
  } catch (error) {
    if (isKubeError(error, 'api-unserved', 'api-not-found')) return new Map();
    throw error;
  }
}
