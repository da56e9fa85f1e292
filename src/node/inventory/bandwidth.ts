import { defined } from '../../lib/defined.ts';
import type { ExclusionVerdict } from './exclusion.ts';
import type { PfRule } from './inventory-policy.ts';

/** A VF's guaranteed share of its port. */
export interface Bandwidth {
  guaranteedMbps: number;
  /** Speed of the whole port, Mbit/s. It limits the sum of the guarantees of allocated VFs. */
  portMbps: number;
  /** Whether the VF may send more than its guarantee while the port has free bandwidth. */
  burst?: true;
}

/**
 * Kernel drivers whose PFs refuse every minimum rate. Refusals of other drivers are recorded when they occur.
 * Source: `ndo_set_vf_rate` of each driver in the kernel, and `mlx4_set_vf_rate`.
 */
const withoutMinimumRates: ReadonlySet<string> = new Set(['be2net', 'funeth', 'i40e', 'igb', 'ixgbe', 'mlx4_core']);

/** Known facts about a VF's port. */
export interface PortFacts {
  /** Last known speed, Mbit/s; absent if it was never known. */
  linkSpeedMbps?: number | undefined;
  /** Kernel driver of the PF. */
  driver?: string | undefined;
  /** Whether the card has refused the rates of this rule. */
  refusesRates: boolean;
}

/**
 * Returns a VF's bandwidth by the rule that covers the VF.
 * @returns `undefined` without a guarantee; the reason to exclude the VF if the guarantee cannot be kept
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
