import { valueAt } from './api-server-types.ts';

/** A verb on a resource; `resource` has the subresource behind a slash: `resourceclaims/status`. */
export interface DeniedAccess {
  verb: string;
  resource: string;
}

const path = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';

/**
 * Answers a client that asks what it may do: everything but what is denied.
 * @returns `undefined` if the request is another one
 */
export function reviewAccess(pathname: string, review: unknown, denied: readonly DeniedAccess[]): object | undefined {
  if (pathname !== path) return undefined;
  const asked = valueAt(review, 'spec.resourceAttributes') ?? {};
  const { verb, resource, subresource } = asked as { verb?: string; resource?: string; subresource?: string };
  const full = subresource === undefined ? resource : `${resource}/${subresource}`;
  const isDenied = denied.some((each) => each.verb === verb && each.resource === full);
  return {
    ...(review as object),
    status: { allowed: !isDenied, ...(isDenied ? { reason: 'no rule allows it' } : {}) },
  };
}
