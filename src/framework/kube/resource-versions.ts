/** Versions of resource.k8s.io that netdra supports, best first. v1 is served since Kubernetes 1.34. */
export const resourceVersions = ['v1', 'v1beta2', 'v1beta1'] as const;
export type ResourceVersion = (typeof resourceVersions)[number];

type Fields = Record<string, unknown>;

/**
 * Converts an object from the v1 shape to another version. v1 and v1beta2 have the same shape; v1beta1 has a device's fields
 * under `basic`. Claims need no conversion: only their status is written, which is the same in all versions. An object with an
 * `apiVersion` keeps it.
 */
export function toResourceVersion(object: object, version: ResourceVersion): object {
  const sent = { apiVersion: `resource.k8s.io/${version}`, ...object };
  return version === 'v1beta1' ? mapDevices(sent, ({ name, ...basic }) => ({ name, basic })) : sent;
}

/**
 * Converts an object of another version to the v1 shape. Also converts claims: in v1beta1 a request's fields are not under
 * `exactly`.
 */
export function fromResourceVersion<T extends object>(object: T, version: ResourceVersion): T {
  if (version !== 'v1beta1') return object;
  const flat = mapDevices(object, ({ basic, ...rest }) => ({
    ...rest,
    ...(basic as Fields | undefined),
  }));
  return mapRequests(flat, ({ name, firstAvailable, ...exactly }) => ({
    name,
    ...(firstAvailable === undefined ? { exactly } : { firstAvailable }),
  })) as T;
}

/** Maps the devices of a ResourceSlice, which are a list. Leaves a claim alone, whose `devices` is an object. */
function mapDevices<T extends object>(object: T, change: (device: Fields) => Fields): T {
  const { spec } = object as { spec?: { devices?: unknown } };
  if (!Array.isArray(spec?.devices)) return object;
  return { ...object, spec: { ...spec, devices: spec.devices.map(change) } };
}

function mapRequests<T extends object>(object: T, change: (request: Fields) => Fields): T {
  const { spec } = object as { spec?: { devices?: { requests?: unknown } } };
  const requests = spec?.devices?.requests;
  if (!Array.isArray(requests)) return object;
  return { ...object, spec: { ...spec, devices: { ...spec?.devices, requests: requests.map(change) } } };
}
