import type { ResourceV1ResourceClaim, V1Pod, V1ResourceSlice } from '@kubernetes/client-node';

/** How the devices are read; a path is one of the API server. */
export type GetObject = <T>(path: string) => Promise<T>;

const prefix = 'k8s.cni.cncf.io';
const api = '/apis/resource.k8s.io/v1';

/** A result of a claim, with the resource name that the pod asked for if it is an extended resource. */
interface Result {
  driver: string;
  pool: string;
  device: string;
  extendedResource: string | undefined;
}

/**
 * Finds the devices of a pod's claims as Multus does: device ids by resource name, in the order of the results. Claims that the pod
 * names directly have no entry in its status, so that Multus does not see them.
 * Source: multus-cni, pkg/draclient, and KEP-5004 for `requestMappings`.
 * @throws Error if a device has not both attributes
 */
export async function devicesOfClaims(pod: V1Pod, get: GetObject): Promise<Map<string, string[]>> {
  const namespace = pod.metadata?.namespace ?? 'default';
  const claimOf = (name: string) =>
    get<ResourceV1ResourceClaim>(`${api}/namespaces/${namespace}/resourceclaims/${name}`);
  const results: Result[] = [];
  for (const { resourceClaimName } of pod.status?.resourceClaimStatuses ?? []) {
    if (resourceClaimName === undefined) continue;
    for (const { driver, pool, device } of resultsOf(await claimOf(resourceClaimName)))
      results.push({ driver, pool, device, extendedResource: undefined });
  }
  const extended = pod.status?.extendedResourceClaimStatus;
  if (extended !== undefined) {
    for (const { request, driver, pool, device } of resultsOf(await claimOf(extended.resourceClaimName))) {
      const mapping = extended.requestMappings.find(({ requestName }) => requestName === request);
      if (mapping !== undefined) results.push({ driver, pool, device, extendedResource: mapping.resourceName });
    }
  }
  if (results.length === 0) return new Map();
  const { items } = await get<{ items: V1ResourceSlice[] }>(`${api}/resourceslices`);
  const found = results.map((result) => ({ ...result, ...idsOf(result, items) }));
  const grouped = Map.groupBy(found, ({ resourceName }) => resourceName);
  return new Map([...grouped].map(([name, devices]) => [name, devices.map(({ deviceID }) => deviceID)]));
}

function resultsOf({ status }: ResourceV1ResourceClaim) {
  return status?.allocation?.devices?.results ?? [];
}

function idsOf({ driver, pool, device, extendedResource }: Result, slices: readonly V1ResourceSlice[]) {
  const attributes = slices
    .filter(({ spec }) => spec.driver === driver && spec.pool.name === pool)
    .flatMap(({ spec }) => spec.devices ?? [])
    .find(({ name }) => name === device)?.attributes;
  const read = (name: string) => {
    const value = attributes?.[`${prefix}/${name}`]?.string;
    if (value === undefined) throw new Error(`device ${device} of ${driver} has no attribute ${prefix}/${name}`);
    return value;
  };
  const [deviceID, resourceName] = [read('deviceID'), read('resourceName')];
  if (extendedResource !== undefined && extendedResource !== resourceName) {
    throw new Error(`device ${device} of ${driver} is ${resourceName}, and the pod asked for ${extendedResource}`);
  }
  return { deviceID, resourceName };
}
