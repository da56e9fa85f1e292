import { defined } from '../../lib/defined.ts';
import { isKubeError, KubeError } from './errors.ts';
import type { KubeApi, KubeQuery, KubeRequest, WatchEvent } from './kube-client.ts';
import { fromResourceVersion, type ResourceVersion, resourceVersions, toResourceVersion } from './resource-versions.ts';
import type { DeviceClass, JsonPatchOperation, KubeList, PodResources, ResourceClaim } from './types.ts';

/**
 * A request below `/apis/resource.k8s.io/<version>/`. Body and response have the v1 shape; the body is an object with its
 * `kind`. A JSON patch, which is a list, is sent unchanged: it may change only the status, which is the same in all versions.
 */
export interface ResourceRequest extends KubeRequest {
  /** Path below the version: `resourceslices/s`, `namespaces/default/resourceclaims/c/status`. */
  path: string;
}

/**
 * Client of resource.k8s.io in the best version that the cluster serves. Works without discovery: a request in an unserved
 * version is sent again in the next one, and later requests start with the version that worked. This also handles clusters that
 * are upgraded meanwhile or whose API servers differ in version.
 */
export class ResourceApi {
  readonly #client: KubeApi;
  #version: ResourceVersion = resourceVersions[0];

  constructor(client: KubeApi) {
    this.#client = client;
  }

  get version(): ResourceVersion {
    return this.#version;
  }

  /**
   * Sends a request and returns the response in the v1 shape. @throws KubeError `api-unserved` if the cluster serves none of
   * the versions, or any other error of the server
   */
  async request<T extends object>(request: ResourceRequest): Promise<T> {
    const { answer, version } = await this.#ask<T>(request);
    return fromResourceVersion(answer, version);
  }

  /** Lists objects in the v1 shape. @param request path and query below the API group, as in {@link ResourceRequest} */
  async list<T extends object>(request: KubeQuery): Promise<KubeList<T>> {
    const { answer, version } = await this.#ask<KubeList<T>>({ ...request, method: 'GET' });
    return { metadata: answer.metadata, items: answer.items.map((item) => fromResourceVersion(item, version)) };
  }

  /** Watches a list, in the version of the last successful request, since a watch follows a list. */
  async *watch<T extends object>(request: KubeQuery): AsyncGenerator<WatchEvent<T>, void, void> {
    const version = this.#version;
    const events = this.#client.watch<T>({ ...request, path: `/apis/resource.k8s.io/${version}/${request.path}` });
    for await (const { type, object } of events) yield { type, object: fromResourceVersion(object, version) };
  }

  async readClaim(namespace: string, name: string, signal?: AbortSignal): Promise<ResourceClaim> {
    const path = claimPath({ namespace, name });
    return await this.request<ResourceClaim>({ method: 'GET', path, ...defined({ signal }) });
  }

  async readPod(namespace: string, name: string, signal?: AbortSignal): Promise<PodResources> {
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`;
    return await this.#client.request<PodResources>({ method: 'GET', path, ...defined({ signal }) });
  }

  async readDeviceClass(name: string, signal?: AbortSignal): Promise<DeviceClass> {
    const path = `deviceclasses/${encodeURIComponent(name)}`;
    return await this.request<DeviceClass>({ method: 'GET', path, ...defined({ signal }) });
  }

  /**
   * Changes the status of a claim.
   * @returns the claim after the change
   * @throws KubeError `api-conflict` if the claim is not at the patch's version; `api-invalid` if the patch does not fit the
   * claim, which may also be due to a different version of the claim
   */
  async patchClaimStatus(
    claim: { namespace: string; name: string },
    patch: JsonPatchOperation[],
    signal: AbortSignal,
  ): Promise<ResourceClaim> {
    const path = `${claimPath(claim)}/status`;
    const contentType = 'application/json-patch+json';
    return await this.request<ResourceClaim>({ method: 'PATCH', path, body: patch, contentType, signal });
  }

  async #ask<T>(request: ResourceRequest): Promise<{ answer: T; version: ResourceVersion }> {
    let unserved: unknown;
    for (const version of [this.#version, ...resourceVersions.filter((each) => each !== this.#version)]) {
      try {
        const answer = await this.#client.request<T>(inVersion(request, version));
        this.#version = version;
        return { answer, version };
      } catch (error) {
        if (!isKubeError(error, 'api-unserved')) throw error;
        unserved ??= error;
      }
    }
    const message = `the API server serves none of resource.k8s.io/${resourceVersions.join(', ')}`;
    const hint =
      'dynamic resource allocation needs Kubernetes 1.34 or newer, or its feature gate and API version switched on';
    throw new KubeError('api-unserved', message, { cause: unserved, hint });
  }
}

/**
 * Returns the path of a claim. Encodes the name, which may come from other components, so that it cannot lead to another
 * resource.
 * @throws KubeError `api-invalid` for `.`, `..` and an empty name, which encoding does not make safe
 */
function claimPath({ namespace, name }: { namespace: string; name: string }): string {
  for (const part of [namespace, name]) {
    if (part !== '' && part !== '.' && part !== '..') continue;
    throw new KubeError('api-invalid', `${JSON.stringify(`${namespace}/${name}`)} is not the name of a claim`);
  }
  return `namespaces/${encodeURIComponent(namespace)}/resourceclaims/${encodeURIComponent(name)}`;
}

function inVersion({ path, body, ...request }: ResourceRequest, version: ResourceVersion): KubeRequest {
  return {
    ...request,
    path: `/apis/resource.k8s.io/${version}/${path}`,
    ...(body === undefined ? {} : { body: Array.isArray(body) ? body : toResourceVersion(body, version) }),
  };
}
