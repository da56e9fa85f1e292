import { createHash } from 'node:crypto';
import type { AllocatedClaim } from '../kubeletplugin/index.ts';

/** Equal for equal allocations of a claim: tells one that was allocated anew from one that is prepared again. */
export function fingerprintOf({ object }: Pick<AllocatedClaim, 'object'>): string {
  const { results = [], config = [] } = object.status?.allocation?.devices ?? {};
  return createHash('sha256')
    .update(textOf([results, config]))
    .digest('base64url');
}

/** Parameters that are nested too deep for a JSON encoder are refused where they are parsed. */
function textOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return '';
    throw error;
  }
}
