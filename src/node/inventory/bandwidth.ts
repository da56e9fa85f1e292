import { defined } from '../../lib/defined.ts';
import type { ExclusionVerdict } from './exclusion.ts';
import type { PfRule } from './inventory-policy.ts';

/** A VF's guaranteed share of its port. */
export interface Bandwidth {
  guaranteedMbps: number;
  /** Speed of the whole port, which bounds the sum of the guarantees of allocated VFs. */
  portMbps: number;
  /** Whether the VF may send more while the port has free bandwidth. */
  burst?: true;
}

/**
 * Kernel drivers whose PFs refuse every minimum rate. Other refusals are learned when they occur.
 * Source: the `ndo_set_vf_rate` of each in the kernel, and `mlx4_set_vf_rate`.
 */
const withoutMinimumRates: ReadonlySet<string> = new Set(['be2net', 'funeth', 'i40e', 'igb', 'ixgbe', 'mlx4_core']);

/** Known facts about a VF's port. */
export interface PortFacts {
  /** Last known speed; absent: it was never known. */
  linkSpeedMbps?: number | undefined;
  /** Kernel driver of the PF. */
  driver?: string | undefined;
  /** Whether the card has refused such rates. */
  refusesRates: boolean;
}

/**
 * Returns a VF's bandwidth by the rule that covers it.
 * @returns `undefined` without a guarantee; the reason to exclude the VF, if the guarantee cannot be kept
 */
export function bandwidthOf(
  rule: PfRule | undefined,
  { linkSpeedMbps, driver = '', refusesRates }: PortFacts,
): Bandwidth | ExclusionVerdict | undefined {
  if (rule?.bandwidth === undefined) return undefined;
  const { guaranteedMbps, portMbps = linkSpeedMbps, burst } = rule.bandwidth;
  if (refusesRates || (burst && withoutMinimumRates.has(driver))) return { reason: 'rates-unsupported' };
  if (portMbps === undefined || portMbps === 0) return { reason: 'port-speed-unknown' };
  if (guaranteedMbps > portMbps) return { reason: 'guarantee-above-port', bandwidth: { guaranteedMbps, portMbps } };
  return { guaranteedMbps, portMbps, ...defined({ burst: burst || undefined }) };
}
