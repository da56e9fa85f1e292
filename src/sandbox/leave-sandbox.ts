import type { Store, VfCarrier } from '../driver/index.ts';
import type { ClaimIdentity } from '../metadata/index.ts';

export interface LeaveSandboxOptions {
  store: Store;
  carrier: VfCarrier;
  /** Hides a claim's files from containers that have not started yet. */
  withdraw: (claim: ClaimIdentity) => Promise<void>;
}

/**
 * Takes a claim's VFs out of a sandbox. To be called with the claim's mutex held.
 * @returns how many were in it
 */
export type LeaveSandbox = (claim: ClaimIdentity, sandboxId: string) => Promise<number>;

export function createLeaveSandbox({ store, carrier, withdraw }: LeaveSandboxOptions): LeaveSandbox {
  return async (claim, sandboxId) => {
    const devices = store.claim(claim.uid)?.devices ?? [];
    const here = devices.filter(({ attachment }) => attachment?.sandboxId === sandboxId);
    if (here.length === 0) return 0;
    // First: as long as a VF counts as being there, what the files say is looked after.
    await withdraw(claim);
    const errors: unknown[] = [];
    for (const device of here) await carrier.release(device).catch((error: unknown) => errors.push(error));
    if (errors.length > 0) throw errors[0];
    return here.length;
  };
}
