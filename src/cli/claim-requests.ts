import type { SchemaFault } from '../driver/api/schema-faults.ts';
import { fieldsOf, selectorsOf } from './multus/contract.ts';

/** A request of a claim, or an alternative of its `firstAvailable`. */
export interface FileRequest {
  /** Full reference: `vf`, `vf/fast`. */
  name: string;
  className: string;
  /** Number of devices; `all`: as many as the node has, with `allocationMode: All`. */
  count: number | 'all';
  /** CEL of its own selectors. */
  selectors: string;
  /** Path below `spec.devices`. */
  path: PropertyKey[];
}

/** Maximum number of devices of an allocation. Source: resource.k8s.io/v1 `AllocationResultsMaxSize`. */
const mostDevices = 32;

/** Returns the requests of a claim's `spec.devices` as in resource.k8s.io/v1: versions before v1beta2 have no `exactly`. */
export function requestFields({ requests }: Record<string, unknown>): Record<string, unknown>[] {
  return (Array.isArray(requests) ? requests : []).map((request) => {
    const { name, firstAvailable, exactly = request } = fieldsOf(request);
    return Array.isArray(firstAvailable) ? { name, firstAvailable } : { name, exactly };
  });
}

/** Returns the alternatives of each request that has a class, without requests that only monitor devices. */
export function requestsOf(devices: Record<string, unknown>): FileRequest[][] {
  return requestFields(devices).map(({ name, firstAvailable, exactly }, index) => {
    const path = ['requests', index];
    if (!Array.isArray(firstAvailable)) return requestOf(`${name}`, exactly, path);
    return firstAvailable.flatMap((each, at) =>
      requestOf(`${name}/${fieldsOf(each).name}`, each, [...path, 'firstAvailable', at]),
    );
  });
}

/** Finds names of requests in configurations and constraints that the API server refuses, since the claim has no such request. */
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
