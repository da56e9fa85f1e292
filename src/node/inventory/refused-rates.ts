import type { InventoryPolicy, PfRule } from './inventory-policy.ts';

/** A card's refusal of the rates of a VF. Rates in Mbit/s. */
export interface RatesRefusal {
  pciAddress: string;
  rate: { minMbps?: number; maxMbps?: number };
  /**
   * Reason. `unsupported`: the card has no such rates at all. `value`: it refuses these values, for example because its port
   * has a lower speed. `temporary`: it may accept them later.
   */
  because: 'unsupported' | 'value' | 'temporary';
}

/** A port: the PCI address of its PF, and its speed in Mbit/s, if it is known. */
interface RefusingPort {
  pciAddress: string;
  linkSpeedMbps?: number;
}

/** Refusals of guaranteed rates by PFs. They are kept by policy, so that another policy is tried again. */
export class RefusedRates {
  readonly #byPolicy = new WeakMap<InventoryPolicy, ReadonlySet<string>>();

  /** Returns the refusals under a policy. The Set is a new one whenever they have changed. */
  of(policy: InventoryPolicy): ReadonlySet<string> {
    return this.#byPolicy.get(policy) ?? new Set();
  }

  has(policy: InventoryPolicy, port: RefusingPort, rule: PfRule): boolean {
    const refusals = this.of(policy);
    return refusals.has(keyOf(port, rule)) || refusals.has(atSpeed(port, rule));
  }

  add(policy: InventoryPolicy, port: RefusingPort, rule: PfRule, because: 'unsupported' | 'value'): void {
    const key = because === 'unsupported' ? keyOf(port, rule) : atSpeed(port, rule);
    this.#byPolicy.set(policy, new Set([...this.of(policy), key]));
  }
}

/**
 * Returns whether a claim has chosen the rate, besides the guarantee of the rule. Only with `burst` can claims choose a
 * maximum rate.
 */
export function isOfClaim({ bandwidth }: PfRule, { rate }: RatesRefusal): boolean {
  return bandwidth?.burst === true && (rate.maxMbps ?? 0) !== 0;
}

/**
 * Returns the key of a refusal. A card without minimum rates may still accept maximum rates, so the key contains the kind of
 * rate.
 */
function keyOf({ pciAddress }: RefusingPort, { bandwidth }: PfRule): string {
  return `${pciAddress} ${bandwidth?.burst ? 'minimum' : 'maximum'}`;
}

function atSpeed(port: RefusingPort, rule: PfRule): string {
  return `${keyOf(port, rule)} at ${port.linkSpeedMbps}`;
}
