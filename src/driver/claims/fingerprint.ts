import { createHash } from 'node:crypto';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';

/** Equal for equal allocations of a claim: distinguishes a new allocation from a repeated prepare. */
export function fingerprintOf({ object }: Pick<AllocatedClaim, 'object'>): string {
  const { results = [], config = [] } = object.status?.allocation?.devices ?? {};
  return createHash('sha256')
    .update(textOf([results, config]))
    .digest('base64url');
}

/** Parameters nested too deeply for a JSON encoder are refused where they are parsed. */
function textOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return '';
    throw error;
  }
}
