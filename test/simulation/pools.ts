import type { NetworkAddress, NetworkAddressLease } from '../../src/driver/addresses/objects.ts';
import { type KubeObject, type ObjectStore, resourceOf, type StoreChange } from '../doubles/api-server-store.ts';
import { namespace, type SimClaim } from './api-server.ts';
import type { ClaimPlan } from './plan.ts';

const pools = resourceOf('NetworkAddressPool');
const addresses = resourceOf('NetworkAddress');
const leases = resourceOf('NetworkAddressLease');

export const poolName = 'lan';

type PoolConfig = { addressPool?: object };

export function hasPool({ config }: ClaimPlan): boolean {
  return (config as PoolConfig).addressPool !== undefined;
}

/** The pool, its assignments, and what must not become of them. */
export class Pools {
  readonly #store: ObjectStore;
  readonly #isUsed: (claim: NetworkAddressLease['spec']['claim']) => boolean;
  /** Called with a change that must not happen. */
  onViolation: (message: string) => void = () => undefined;

  /** @param isUsed whether the claim exists and is reserved for a pod */
  constructor(store: ObjectStore, isUsed: (claim: NetworkAddressLease['spec']['claim']) => boolean) {
    this.#store = store;
    this.#isUsed = isUsed;
    store.onChange((change) => this.#check(change));
  }

  /** Creates the pool, for the first claim that has it. */
  create(): void {
    if (this.#store.find(pools, undefined, poolName) !== undefined) return;
    const metadata = { name: poolName, uid: `uid-${poolName}` };
    this.#store.create(pools, undefined, { metadata, spec: { ranges: [{ network: '192.0.2.0/26' }] } } as object);
  }

  /** A claim's plan with the addresses that its key has. */
  planOf({ name, plan }: SimClaim): ClaimPlan {
    if (!hasPool(plan)) return plan;
    const all = this.#store.list(addresses, namespace) as unknown as NetworkAddress[];
    const assigned = all.find(({ spec }) => spec.key === name)?.spec.addresses ?? ['that of the pool'];
    return { ...plan, config: { ...plan.config, addresses: assigned } };
  }

  #check({ resource, before, after }: StoreChange): void {
    if (resource === addresses) this.#checkAddress(before, after);
    if (resource === leases) this.#checkLease(before, after);
  }

  #checkAddress(before?: KubeObject, after?: KubeObject): void {
    const [old, now] = [before, after].map((each) => (each as NetworkAddress | undefined)?.spec);
    if (old?.addresses !== undefined && old.addresses.join() !== now?.addresses?.join())
      this.onViolation(`${old.key} had ${old.addresses}, and has ${now?.addresses}`);
    for (const cidr of old?.addresses === undefined ? (now?.addresses ?? []) : []) {
      const all = this.#store.list(leases) as unknown as NetworkAddressLease[];
      const lease = all.find(({ spec }) => cidr.startsWith(`${spec.address}/`));
      if (lease?.spec.holder.uid !== after?.metadata.uid) this.onViolation(`${now?.key} has ${cidr} without its lease`);
    }
  }

  #checkLease(before?: KubeObject, after?: KubeObject): void {
    const [old, now] = [before, after].map((each) => (each as NetworkAddressLease | undefined)?.spec);
    if (old === undefined || old.claim.uid === now?.claim.uid) return;
    if (this.#isUsed(old.claim)) this.onViolation(`claim ${old.claim.name} lost ${old.address} to ${now?.claim.name}`);
  }
}
