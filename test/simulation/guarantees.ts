import type { StoredClaim, StoredDevice } from '../../src/driver/model/index.ts';
import type { InventoryPolicy } from '../../src/node/inventory/inventory-policy.ts';
import type { SimVf } from './hardware.ts';
import type { BandwidthPlan } from './plan.ts';
import type { Node, SimPod } from './world.ts';

/** Of every PF, if the policy guarantees bandwidth. */
const portMbps = 10_000;

/** A policy in which every VF that it offers by a rule has a guarantee. */
export function withGuarantees(
  policy: InventoryPolicy,
  plan: BandwidthPlan | undefined,
  guaranteedMbps = plan?.guaranteedMbps ?? 0,
): InventoryPolicy {
  if (plan === undefined) return policy;
  const bandwidth = { guaranteedMbps, portMbps, burst: plan.burst };
  return { pfs: (policy.pfs ?? [{ select: {} }]).map((rule) => ({ ...rule, bandwidth })) };
}

/** What must hold of the guarantees of VFs: the store says what they are, and the card has the rates. */
export class Guarantees {
  readonly #node: Node;
  /** By UID of the claim: PCI addresses of its VFs. */
  readonly #held = new Map<string, string[]>();
  readonly #onViolation: (rule: string, message: string) => void;

  constructor(node: Node, onViolation: (rule: string, message: string) => void) {
    this.#node = node;
    this.#onViolation = onViolation;
  }

  /** The guarantees of the VFs of a port are not more than the port has. */
  claimStored({ identity, devices }: StoredClaim): void {
    if (this.#node.plan.bandwidth === undefined) return;
    this.#held.set(
      identity.uid,
      devices.map(({ pciAddress }) => pciAddress),
    );
    for (const [pfAddress, mbps] of this.#sums()) {
      if (mbps <= portMbps) continue;
      this.#onViolation('oversold', `claims have ${mbps} Mbit/s of ${pfAddress}, whose port has ${portMbps}`);
    }
  }

  /** A VF that is free, and not known as unrestored, has no rates any more. */
  claimDeleted(uid: string): void {
    const unrestored = this.#store?.unrestored().map(({ device }) => device.pciAddress);
    for (const pciAddress of this.#held.get(uid) ?? []) {
      const { minTxRateMbps: min = 0, maxTxRateMbps: max = 0 } = this.#node.hardware.find(pciAddress)?.settings ?? {};
      if (min + max === 0 || unrestored?.includes(pciAddress)) continue;
      this.#onViolation('rates-stay', `${pciAddress} of ${uid}, which is gone, still has the rates ${min} and ${max}`);
    }
    this.#held.delete(uid);
  }

  /** @returns what is wrong with the rates of a VF whose container starts */
  problemOf({ pciAddress, settings }: SimVf): string | undefined {
    const device = this.#deviceOf(pciAddress);
    if (device === undefined) return undefined;
    const mbps = guaranteeOf(device);
    const { minTxRateMbps: min, maxTxRateMbps: max } = settings;
    const [wantedMin, wantedMax] = this.#node.plan.bandwidth?.burst ? [mbps, 0] : [0, mbps];
    if (min === wantedMin && max === wantedMax) return undefined;
    return `the rates ${min} and ${max}, not ${wantedMin} and ${wantedMax}`;
  }

  /** What slices say of guarantees, and policy and claims do not. A VF that a claim has stays as it was offered. */
  *misreported(): Generator<string> {
    const { apiServer, plan, hardware } = this.#node;
    if (plan.bandwidth === undefined) return;
    const sets = apiServer.slices.flatMap(({ spec }) => spec.sharedCounters ?? []);
    const ports = new Map(sets.map(({ name, counters }) => [name, counters.bandwidth?.value]));
    for (const { name, capacity, consumesCounters = [] } of apiServer.offered()) {
      const pciAddress = hardware.vfs.find((vf) => vf.name === name)?.pciAddress ?? '';
      const held = this.#deviceOf(pciAddress);
      const mbps = held === undefined ? plan.bandwidth.guaranteedMbps : guaranteeOf(held);
      const taken = consumesCounters.map(({ counterSet, counters }) => {
        return `${counters.bandwidth?.value} of ${ports.get(counterSet)}`;
      });
      const shown = [capacity?.bandwidth?.value, ...taken].join();
      const expected = mbps === 0 ? '' : `${mbps}M,${mbps}M of ${portMbps}M`;
      if (shown !== expected) yield `${name} is offered with the bandwidth ${shown}, not ${expected}`;
    }
  }

  /** Whether a claim of the pod waits for bandwidth that other claims have: the scheduler may not count. */
  isWaiting(pod: SimPod): boolean {
    const { plan, hardware } = this.#node;
    const mbps = plan.bandwidth?.guaranteedMbps;
    const store = this.#store;
    if (mbps === undefined || store === undefined) return false;
    return this.#node.claimsOf(pod).some((claim) => {
      if (store.claim(claim.uid)?.state === 'prepared') return false;
      const others = this.#sums(claim.uid);
      const byPf = Map.groupBy(hardware.allocatedTo(claim), ({ pf }) => pf.pciAddress);
      return [...byPf].some(([pf, own]) => own.length * mbps + (others.get(pf) ?? 0) > portMbps);
    });
  }

  /** As the claim that has it has stored it. */
  #deviceOf(pciAddress: string): StoredDevice | undefined {
    return this.#store?.holderOf(pciAddress)?.devices.find((each) => each.pciAddress === pciAddress);
  }

  get #store() {
    return this.#node.instances.findLast(({ process }) => process.isAlive)?.store;
  }

  /** What claims have of each PF. @param except UID of a claim */
  #sums(except?: string): Map<string, number> {
    const sums = new Map<string, number>();
    for (const { identity, devices } of this.#store?.claims() ?? []) {
      if (identity.uid === except) continue;
      for (const device of devices) {
        const { pfAddress = '' } = device;
        sums.set(pfAddress, (sums.get(pfAddress) ?? 0) + guaranteeOf(device));
      }
    }
    return sums;
  }
}

function guaranteeOf({ offered }: StoredDevice): number {
  return (offered?.kind === 'vf' && offered.bandwidth?.guaranteedMbps) || 0;
}
