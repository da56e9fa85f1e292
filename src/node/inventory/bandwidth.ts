import { defined } from '../../lib/defined.ts';
import type { Exclusion } from './exclusion.ts';
import type { PfRule } from './inventory-policy.ts';

/** What a VF is sure of on its port. */
export interface Bandwidth {
  guaranteedMbps: number;
  /** Of the whole port: the guarantees of the VFs that claims have are not more. */
  portMbps: number;
  /** Whether the VF may send more while the port is free. */
  burst?: true;
}

/**
 * A VF's bandwidth by the rule that covers it.
 * @param linkSpeedMbps of the port, as last seen; absent: it was never known
 * @returns `undefined` without one; why the VF cannot be offered, if the guarantee cannot be kept
 */
export function bandwidthOf(
  rule: PfRule | undefined,
  linkSpeedMbps: number | undefined,
): Bandwidth | Pick<Exclusion, 'reason' | 'bandwidth'> | undefined {
  if (rule?.bandwidth === undefined) return undefined;
  const { guaranteedMbps, portMbps = linkSpeedMbps, burst } = rule.bandwidth;
  if (portMbps === undefined || portMbps === 0) return { reason: 'port-speed-unknown' };
  if (guaranteedMbps > portMbps) return { reason: 'guarantee-above-port', bandwidth: { guaranteedMbps, portMbps } };
  return { guaranteedMbps, portMbps, ...defined({ burst: burst || undefined }) };
}
