import type { InventoryPolicy, PfRule } from './inventory-policy.ts';

/** A card's refusal of the rates of a VF. Rates in Mbit/s. */
export interface RatesRefusal {
  pciAddress: string;
  rate: { minMbps?: number; maxMbps?: number };
  /**
   * `unsupported`: the card has no such rates. `value`: it refuses these, as a port of a lower speed does. `temporary`: it may
   * take them later.
   */
  because: 'unsupported' | 'value' | 'temporary';
}

/** Facts about a port: the PCI address of its PF, and its speed, if it is known. */
interface RefusingPort {
  pciAddress: string;
  linkSpeedMbps?: number;
}

/** PFs that have refused the rates of guarantees, by policy: another policy is tried anew. */
export class RefusedRates {
  readonly #byPolicy = new WeakMap<InventoryPolicy, ReadonlySet<string>>();

  /** Returns the refusals under a policy; a new Set whenever there are others than before. */
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

/** Returns whether a claim has chosen the rate, and not only the guarantee of a rule: it may send more only with `burst`. */
export function isOfClaim({ bandwidth }: PfRule, { rate }: RatesRefusal): boolean {
  return bandwidth?.burst === true && (rate.maxMbps ?? 0) !== 0;
}

/** A card without minimum rates may still accept maximum rates. */
function keyOf({ pciAddress }: RefusingPort, { bandwidth }: PfRule): string {
  return `${pciAddress} ${bandwidth?.burst ? 'minimum' : 'maximum'}`;
}

function atSpeed(port: RefusingPort, rule: PfRule): string {
  return `${keyOf(port, rule)} at ${port.linkSpeedMbps}`;
}
