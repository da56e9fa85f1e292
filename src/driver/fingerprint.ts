import { createHash } from 'node:crypto';
import type { AllocatedClaim } from '../kubeletplugin/index.ts';

/** Equal for equal allocations of a claim: tells one that was allocated anew from one that is prepared again. */
export function fingerprintOf({ object }: Pick<AllocatedClaim, 'object'>): string {
  const { results = [], config = [] } = object.status?.allocation?.devices ?? {};
  return createHash('sha256')
    .update(JSON.stringify([results, config]))
    .digest('base64url');
}
