import type { KeyedMutex } from '../keyed-mutex.ts';
import type { AllocatedClaim, DraPlugin, PrepareResult } from '../kubeletplugin/index.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import { configForDevice, resolveVfConfig } from './config.ts';
import { DriverError } from './errors.ts';
import type { Store, StoredClaim, StoredDevice } from './store.ts';

/** The node's VFs, by their names in the ResourceSlice. */
export interface Inventory {
  /** The PCI address of a device of the pool. */
  pciAddressOf(pool: string, device: string): string | undefined;
}

/** Brings VFs back from where they are. */
export interface VfCarrier {
  /** Afterwards the VF is in the host's network namespace, as it was before it left. Idempotent. */
  release(device: StoredDevice): Promise<void>;
}

export interface DriverOptions {
  driver: string;
  store: Store;
  inventory: Inventory;
  carrier: VfCarrier;
  /** Serializes what is done to the VFs of one claim, with the sandbox side. */
  claimMutex: KeyedMutex;
}

/**
 * Prepares VFs for claims. Kernel-mode VFs have nothing to mount, and what they are like is known only in the pod's
 * sandbox, so the result is empty: the framework defers every request.
 */
export class Driver implements DraPlugin {
  readonly #options: DriverOptions;

  constructor(options: DriverOptions) {
    this.#options = options;
  }

  async prepareResourceClaims(claims: AllocatedClaim[]): Promise<Map<string, PrepareResult>> {
    return await perClaim(
      claims,
      ({ identity }) => identity.uid,
      async (claim): Promise<PrepareResult> => {
        try {
          await this.#options.claimMutex.run(claim.identity.uid, async () => this.#prepare(claim));
          return { devices: [] };
        } catch (error) {
          return { error: error as Error };
        }
      },
    );
  }

  async unprepareResourceClaims(claims: ClaimIdentity[]): Promise<Map<string, Error | undefined>> {
    return await perClaim(
      claims,
      ({ uid }) => uid,
      async (claim) => {
        try {
          await this.#options.claimMutex.run(claim.uid, async () => this.#unprepare(claim));
          return undefined;
        } catch (error) {
          return error as Error;
        }
      },
    );
  }

  #prepare(claim: AllocatedClaim): void {
    const { store } = this.#options;
    const before = store.claim(claim.identity.uid);
    const devices = this.#resolveDevices(claim).map((device) => {
      // Prepared again after a restart of the kubelet: the VF may be in its pod already, and stays there.
      const known = before?.devices.find(({ pciAddress }) => pciAddress === device.pciAddress);
      return { ...known, ...device };
    });
    store.putClaim({ identity: claim.identity, podUids: claim.podUids, state: 'prepared', devices });
  }

  #resolveDevices(claim: AllocatedClaim): StoredDevice[] {
    const { driver, inventory } = this.#options;
    const subject = `${claim.identity.namespace}/${claim.identity.name}`;
    const results = claim.results.filter((result) => result.driver === driver);
    return results.map((result) => {
      const pciAddress = inventory.pciAddressOf(result.pool, result.device);
      if (pciAddress === undefined) {
        throw new DriverError(
          'device-unknown',
          `claim ${subject}: this node has no device ${result.pool}/${result.device}`,
          {
            claim: subject,
            device: result.device,
            hint: 'the VF vanished after it was allocated; delete the pod so that it is scheduled anew',
          },
        );
      }
      this.#checkFree(pciAddress, result.device, claim);
      const siblings = results.filter(({ request }) => request === result.request);
      const config = resolveVfConfig(driver, claim, result.request);
      return {
        pciAddress,
        pool: result.pool,
        name: result.device,
        request: result.request,
        config: configForDevice(config, subject, siblings.indexOf(result), siblings.length),
      };
    });
  }

  #checkFree(pciAddress: string, device: string, claim: AllocatedClaim): void {
    const holder = this.#options.store.holderOf(pciAddress);
    if (holder === undefined || holder.identity.uid === claim.identity.uid) return;
    const { namespace, name } = claim.identity;
    const other = holder.identity;
    throw new DriverError(
      'device-in-use',
      `device ${device} (${pciAddress}) cannot be prepared for claim ${namespace}/${name}: it is prepared for claim ${other.namespace}/${other.name}`,
      {
        claim: `${namespace}/${name}`,
        device,
        retriable: true,
        hint: 'it is free again when that claim is unprepared',
      },
    );
  }

  async #unprepare({ uid }: ClaimIdentity): Promise<void> {
    const { store, carrier } = this.#options;
    const claim = store.claim(uid);
    if (claim === undefined) return;
    const leaving: StoredClaim = { ...claim, state: 'unpreparing' };
    store.putClaim(leaving);
    for (const device of leaving.devices) await carrier.release(device);
    store.deleteClaim(uid);
  }
}

async function perClaim<C, R>(
  claims: C[],
  uid: (claim: C) => string,
  task: (claim: C) => Promise<R>,
): Promise<Map<string, R>> {
  const results = new Map<string, R>();
  // One after the other: two claims of one call must not both find the same device free.
  for (const claim of claims) results.set(uid(claim), await task(claim));
  return results;
}
