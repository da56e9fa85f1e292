import type { KeyedMutex } from '../keyed-mutex.ts';
import type { AllocatedClaim, DraPlugin, PreparedDevice, PrepareResult } from '../kubeletplugin/index.ts';
import type { CdiSpecs, ClaimIdentity } from '../metadata/index.ts';
import type { VfAddress, VfBefore, VfWanted } from '../sriov/index.ts';
import { configForDevice, type PrivilegedField, resolveVfConfig } from './config.ts';
import { DriverError } from './errors.ts';
import type { Store, StoredClaim, StoredDevice } from './store.ts';
import { isUserSpace, toVfWanted } from './vf-wanted.ts';

/** The node's VFs, by their names in the ResourceSlice. */
export interface Inventory {
  find(pool: string, device: string): (VfAddress & { simulated: boolean }) | undefined;
}

/** Brings VFs back from where they are. */
export interface VfCarrier {
  /** Afterwards the VF is in the host's network namespace, as it was before it left. Idempotent. */
  release(device: StoredDevice): Promise<void>;
}

/** Changes VFs from outside: kernel driver, and what the PF has set. */
export interface VfControl {
  read(address: VfAddress): Promise<VfBefore>;
  apply(address: VfAddress, wanted: VfWanted, before: VfBefore): Promise<void>;
  restore(address: VfAddress, before: VfBefore): Promise<void>;
  iommuGroup(pciAddress: string): Promise<string>;
}

export interface DriverOptions {
  driver: string;
  store: Store;
  inventory: Inventory;
  carrier: VfCarrier;
  control: VfControl;
  /** CDI specs for what containers need besides the metadata. */
  deviceSpecs: CdiSpecs;
  /** Privileged fields that claims may set. */
  openClaimFields: readonly PrivilegedField[];
  /** Serializes what is done to the VFs of one claim, with the sandbox side. */
  claimMutex: KeyedMutex;
}

/**
 * Prepares VFs for claims: sets them up from outside and remembers what they were. What they are like in the pod is
 * known only in its sandbox, so metadata is always deferred; kernel-mode VFs have nothing else to mount, and the result
 * is empty then.
 */
export class Driver implements DraPlugin {
  readonly #options: DriverOptions;

  constructor(options: DriverOptions) {
    this.#options = options;
  }

  async prepareResourceClaims(claims: AllocatedClaim[]): Promise<Map<string, PrepareResult>> {
    const results = new Map<string, PrepareResult>();
    // One after the other: two claims of one call must not both find the same device free.
    for (const claim of claims) {
      const { uid } = claim.identity;
      try {
        results.set(uid, { devices: await this.#options.claimMutex.run(uid, () => this.#prepare(claim)) });
      } catch (error) {
        results.set(uid, { error: error as Error });
      }
    }
    return results;
  }

  async unprepareResourceClaims(claims: ClaimIdentity[]): Promise<Map<string, Error | undefined>> {
    const results = new Map<string, Error | undefined>();
    for (const claim of claims) {
      try {
        await this.#options.claimMutex.run(claim.uid, () => this.#unprepare(claim));
        results.set(claim.uid, undefined);
      } catch (error) {
        results.set(claim.uid, error as Error);
      }
    }
    return results;
  }

  async #prepare(claim: AllocatedClaim): Promise<PreparedDevice[]> {
    const { store } = this.#options;
    const { identity, podUids } = claim;
    const known = store.claim(identity.uid);
    const devices: StoredDevice[] = [];
    for (const device of this.#resolveDevices(claim)) {
      // Prepared again after a restart of the kubelet: the VF may be in its pod already, and stays there.
      const earlier = known?.devices.find(({ pciAddress }) => pciAddress === device.pciAddress);
      const before = earlier?.before ?? (await this.#readBefore(device));
      devices.push({ ...earlier, ...device, ...(before === undefined ? {} : { before }) });
    }
    if (known?.state !== 'prepared') {
      store.putClaim({ identity, podUids, state: 'preparing', devices });
      for (const device of devices) await this.#setUp(device);
    }
    store.putClaim({ identity, podUids, state: 'prepared', devices });
    return await this.#describe(identity, devices);
  }

  async #readBefore(device: StoredDevice): Promise<VfBefore | undefined> {
    return toVfWanted(device.config) === undefined ? undefined : await this.#options.control.read(device);
  }

  async #setUp(device: StoredDevice): Promise<void> {
    const wanted = toVfWanted(device.config);
    if (wanted !== undefined && device.before !== undefined) {
      await this.#options.control.apply(device, wanted, device.before);
    }
  }

  /** Nothing for claims without user-space VFs: the framework defers all their requests. */
  async #describe(identity: ClaimIdentity, devices: StoredDevice[]): Promise<PreparedDevice[]> {
    if (!devices.some(({ config }) => isUserSpace(config))) return [];
    return await Promise.all(
      devices.map(
        async (device): Promise<PreparedDevice> => ({
          requests: [device.request],
          poolName: device.pool,
          deviceName: device.name,
          cdiDeviceIds: isUserSpace(device.config) ? [await this.#writeVfioSpec(identity, device)] : [],
          metadata: 'deferred',
        }),
      ),
    );
  }

  async #writeVfioSpec({ uid }: ClaimIdentity, device: StoredDevice): Promise<string> {
    const { control, deviceSpecs } = this.#options;
    const group = await control.iommuGroup(device.pciAddress);
    const deviceNodes = ['/dev/vfio/vfio', `/dev/vfio/${group}`].map((path) => ({ path, permissions: 'rw' }));
    await deviceSpecs.write(uid, device.name, { deviceNodes });
    return deviceSpecs.deviceId(uid, device.name);
  }

  #resolveDevices(claim: AllocatedClaim): StoredDevice[] {
    const { driver, inventory, openClaimFields } = this.#options;
    const subject = `${claim.identity.namespace}/${claim.identity.name}`;
    const results = claim.results.filter((result) => result.driver === driver);
    return results.map(({ pool, device: name, request }) => {
      const vf = inventory.find(pool, name);
      if (vf === undefined) {
        throw new DriverError('device-unknown', `claim ${subject}: this node has no device ${pool}/${name}`, {
          claim: subject,
          device: name,
          hint: 'the VF vanished after it was allocated; delete the pod so that it is scheduled anew',
        });
      }
      const { pciAddress, pfAddress, vfIndex } = vf;
      this.#checkFree(pciAddress, name, claim);
      const siblings = results.filter((result) => result.request === request);
      const index = siblings.findIndex((sibling) => sibling.device === name && sibling.pool === pool);
      const resolved = resolveVfConfig(driver, claim, request, openClaimFields);
      const config = configForDevice(resolved, subject, index, siblings.length);
      return { pciAddress, pfAddress, vfIndex, pool, name, request, config };
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
    const { store, carrier, control, deviceSpecs } = this.#options;
    const claim = store.claim(uid);
    if (claim !== undefined) {
      const leaving: StoredClaim = { ...claim, state: 'unpreparing' };
      store.putClaim(leaving);
      for (const device of leaving.devices) {
        await carrier.release(device);
        if (device.before !== undefined) await control.restore(device, device.before);
      }
    }
    await deviceSpecs.removeClaim(uid);
    store.deleteClaim(uid);
  }
}
