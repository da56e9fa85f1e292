import type { SchemaFault } from '../driver/api/schema-faults.ts';
import { fieldsOf, selectorsOf } from './multus/contract.ts';

/** A request of a claim, or an alternative of its `firstAvailable`. */
export interface FileRequest {
  /** Full reference to the request: `vf`, `vf/fast`. */
  name: string;
  className: string;
  /** Number of devices; `all` for all devices of the node, with `allocationMode: All`. */
  count: number | 'all';
  /** CEL of the request's own selectors. */
  selectors: string;
  /** Path of the request below `spec.devices`. */
  path: PropertyKey[];
}

/** Maximum number of devices of an allocation. Source: resource.k8s.io/v1 `AllocationResultsMaxSize`. */
const mostDevices = 32;

/**
 * Returns the requests of a claim's `spec.devices` in the form of resource.k8s.io/v1. Adds `exactly`, which v1beta1 does not
 * have.
 */
export function requestFields({ requests }: Record<string, unknown>): Record<string, unknown>[] {
  return (Array.isArray(requests) ? requests : []).map((request) => {
    const { name, firstAvailable, exactly = request } = fieldsOf(request);
    return Array.isArray(firstAvailable) ? { name, firstAvailable } : { name, exactly };
  });
}

/**
 * Returns the alternatives of each request that names a class. Leaves out requests with admin access, which only monitor
 * devices.
 */
export function requestsOf(devices: Record<string, unknown>): FileRequest[][] {
  return requestFields(devices).map(({ name, firstAvailable, exactly }, index) => {
    const path = ['requests', index];
    if (!Array.isArray(firstAvailable)) return requestOf(`${name}`, exactly, path);
    return firstAvailable.flatMap((each, at) =>
      requestOf(`${name}/${fieldsOf(each).name}`, each, [...path, 'firstAvailable', at]),
    );
  });
}

/** Finds references in configurations and constraints to requests that the claim does not have. The API server refuses them. */
export function findUnknownRequests(devices: Record<string, unknown>): SchemaFault[] {
  const known = requestFields(devices).flatMap(({ name, firstAvailable }) => {
    const alternatives = Array.isArray(firstAvailable) ? firstAvailable : [];
    return [name, ...alternatives.map((each) => `${name}/${fieldsOf(each).name}`)];
  });
  return ['config', 'constraints'].flatMap((list) => {
    const entries = devices[list];
    return (Array.isArray(entries) ? entries : []).flatMap((entry, index) => {
      const { requests } = fieldsOf(entry);
      return (Array.isArray(requests) ? requests : []).flatMap((name, at): SchemaFault[] => {
        const path = [list, index, 'requests', at];
        const message = `${JSON.stringify(name)} is the name of no request of the claim, so the API server refuses it`;
        return known.includes(name) ? [] : [{ field: path.join('.'), message, path }];
      });
    });
  });
}

function requestOf(name: string, value: unknown, path: PropertyKey[]): FileRequest[] {
  const { deviceClassName, adminAccess, allocationMode, count = 1 } = fieldsOf(value);
  if (typeof deviceClassName !== 'string' || adminAccess === true) return [];
  const number = allocationMode === 'All' ? 'all' : Math.min(Number(count), mostDevices);
  return [{ name, className: deviceClassName, count: number, selectors: selectorsOf(fieldsOf(value)), path }];
}
