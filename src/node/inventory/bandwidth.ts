import { defined } from '../../lib/defined.ts';
import type { ExclusionVerdict } from './exclusion.ts';
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
 * Kernel drivers of PFs that refuse every minimum rate. Others are learned of when they refuse one.
 * Source: the `ndo_set_vf_rate` of each in the kernel, and `mlx4_set_vf_rate`.
 */
const withoutMinimumRates: ReadonlySet<string> = new Set(['be2net', 'funeth', 'i40e', 'igb', 'ixgbe', 'mlx4_core']);

/** What is known of the port of a VF. */
export interface PortFacts {
  /** As last seen; absent: it was never known. */
  linkSpeedMbps?: number | undefined;
  /** Kernel driver of the PF. */
  driver?: string | undefined;
  /** Whether the card has refused the rates of such a guarantee. */
  refusesRates: boolean;
}

/**
 * A VF's bandwidth by the rule that covers it.
 * @returns `undefined` without one; why the VF cannot be offered, if the guarantee cannot be kept
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
