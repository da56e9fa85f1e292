import { defined } from '../../lib/defined.ts';
import { baseRequest } from '../metadata/index.ts';
import type { WireDevice } from './dra-service.ts';
import type { PreparedDevice } from './plugin.ts';

/**
 * Converts a device for the kubelet. The first device of a request carries the CDI ID that mounts the request's metadata; the
 * ID is then removed from `ids`. A device that serves several requests goes to the containers of all of them. Its metadata
 * mounts become entries of their own, one for each request: a container must see only the metadata of its own requests.
 */
export function toWire(device: PreparedDevice, ids: Map<string, string>): WireDevice[] {
  const { poolName, deviceName, shareId, cdiDeviceIds } = device;
  const rest = { poolName, deviceName, ...defined({ shareId }) };
  const requestNames = [...new Set(device.requests.map(baseRequest))];
  const [only, ...others] = requestNames;
  if (only !== undefined && others.length === 0)
    return [{ requestNames, cdiDeviceIds: [...cdiDeviceIds, ...take(ids, only)], ...rest }];
  const mounts = (only === undefined ? [...ids.keys()] : requestNames).flatMap((request) =>
    take(ids, request).map((id) => ({ requestNames: [request], cdiDeviceIds: [id], ...rest })),
  );
  return [{ requestNames, cdiDeviceIds, ...rest }, ...mounts];
}

function take(ids: Map<string, string>, request: string): string[] {
  const id = ids.get(request);
  ids.delete(request);
  return id === undefined ? [] : [id];
}
