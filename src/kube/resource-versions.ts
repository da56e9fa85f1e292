/** Versions of resource.k8s.io that we can speak, the best first. v1 is served since Kubernetes 1.34. */
export const resourceVersions = ['v1', 'v1beta2', 'v1beta1'] as const;
export type ResourceVersion = (typeof resourceVersions)[number];

type Json = { [member: string]: unknown };

/**
 * An object in the shape of v1, as another version has it. v1 and v1beta2 have the same shape; v1beta1 keeps what a
 * device has under `basic`. Claims are written through their status only, which is the same in all. An object that names
 * its `apiVersion` keeps it.
 */
export function toResourceVersion(object: object, version: ResourceVersion): object {
  const sent = { apiVersion: `resource.k8s.io/${version}`, ...object };
  return version === 'v1beta1' ? mapDevices(sent, ({ name, ...basic }) => ({ name, basic })) : sent;
}

/** The opposite of {@link toResourceVersion}, for claims too: v1beta1 has no `exactly` around what a request asks for. */
export function fromResourceVersion<T extends object>(object: T, version: ResourceVersion): T {
  if (version !== 'v1beta1') return object;
  const flat = mapDevices(object, ({ basic, ...rest }) => ({ ...rest, ...(basic as Json | undefined) }));
  return mapRequests(flat, ({ name, firstAvailable, ...exactly }) => ({
    name,
    ...(firstAvailable === undefined ? { exactly } : { firstAvailable }),
  })) as T;
}

/** Of a ResourceSlice, whose devices are a list; a claim's are an object. */
function mapDevices<T extends object>(object: T, change: (device: Json) => Json): T {
  const { spec } = object as { spec?: { devices?: unknown } };
  if (!Array.isArray(spec?.devices)) return object;
  return { ...object, spec: { ...spec, devices: spec.devices.map(change) } };
}

function mapRequests<T extends object>(object: T, change: (request: Json) => Json): T {
  const { spec } = object as { spec?: { devices?: { requests?: unknown } } };
  const requests = spec?.devices?.requests;
  if (!Array.isArray(requests)) return object;
  return { ...object, spec: { ...spec, devices: { ...spec?.devices, requests: requests.map(change) } } };
}
