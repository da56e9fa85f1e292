import { fieldsOf } from './multus/contract.ts';

/**
 * Returns the requests of a claim with their classes, each alternative of `firstAvailable` separately, without requests
 * that only monitor devices.
 */
export function requestsOf({ requests }: Record<string, unknown>) {
  return (Array.isArray(requests) ? requests : []).flatMap((request, index) => {
    // Before resource.k8s.io/v1beta2 there is no `exactly`.
    const { name, firstAvailable, exactly = request } = fieldsOf(request);
    const alternatives = Array.isArray(firstAvailable) ? firstAvailable : [];
    if (fieldsOf(exactly).adminAccess === true) return [];
    const found = [{ name: `${name}`, fields: fieldsOf(exactly), path: ['requests', index] }];
    for (const [at, each] of alternatives.entries()) {
      const fields = fieldsOf(each);
      found.push({ name: `${name}/${fields.name}`, fields, path: ['requests', index, 'firstAvailable', at] });
    }
    return found.flatMap(({ fields: { deviceClassName: className }, ...rest }) =>
      typeof className === 'string' ? [{ className, ...rest }] : [],
    );
  });
}
