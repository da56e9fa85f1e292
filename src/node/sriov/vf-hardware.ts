import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { poll } from '../../lib/poll.ts';
import {
  FunctionLinks,
  type LinkEthtool,
  type LinkFinder,
  type LinkState,
  type LinkStateConnection,
  type RestoreFailure,
  readHostConfig,
  readLinkState,
  type VfChange,
  type VfInfo,
  type VfInfoAccess,
} from '../netlink/index.ts';
import { restoreAdminAddress } from './admin-address.ts';
import { DeviceNodes, type RdmaAccess } from './device-nodes.ts';
import { type DriverBinding, hasNoInterface, isVfio } from './driver-binding.ts';
import { missingFunction, SriovError, UnknownVfStateError } from './errors.ts';
import { appears, restoreInterface } from './function-interface.ts';
import { limitsOf, type MtuLimit } from './mtu-limits.ts';
import { assertNoVfProperties, propertiesOf, type VfPropertiesWanted } from './property-values.ts';
import { incomplete, linkFailures, type PropertyFailure, toFailures } from './restore-failures.ts';
import { VfProperties } from './vf-properties.ts';
import {
  type AccessWanted,
  addressToKeep,
  keepsAddress,
  type RestoreOptions,
  type SnapshotOptions,
  type VfAccess,
  type VfAddress,
  type VfSnapshot,
  type VfWanted,
} from './vf-snapshot.ts';

export interface VfHardwareOptions {
  binding: DriverBinding;
  /** Netlink connection in the namespace that the PFs' interfaces are in. */
  host: LinkFinder & VfInfoAccess & LinkStateConnection;
  /** Ethtool in the namespace of `host`; absent: ethtool settings are neither read nor restored. */
  ethtool?: LinkEthtool;
  clock: Clock;
  nodes?: DeviceNodes;
  /** Called for a VF with a user-space driver that cannot be reset between two claims. */
  onNotReset?: (pciAddress: string, driver: string) => void;
  /** Called for a VF whose PF refuses to remove its administrative address. */
  onAddressKept?: (pciAddress: string, hardwareAddress: string) => void;
}

/** Reads and changes VFs through sysfs and their PFs. */
export class VfHardware {
  readonly #options: VfHardwareOptions;
  readonly #binding: DriverBinding;
  readonly #host: VfHardwareOptions['host'];
  readonly #nodes: DeviceNodes;
  readonly #links: FunctionLinks;
  readonly #properties: VfProperties;

  constructor(options: VfHardwareOptions) {
    const { binding, host, clock, nodes = new DeviceNodes() } = options;
    this.#options = options;
    this.#binding = binding;
    this.#host = host;
    this.#nodes = nodes;
    this.#links = new FunctionLinks(host);
    this.#properties = new VfProperties({ host, links: this.#links, binding, clock });
  }

  /**
   * Returns a snapshot of everything that a pod or its CNI plugin may change, whatever the claim requests. Properties that
   * the PF does not report are left out, unless they are about to be changed.
   * @throws SriovError `vf-state-unknown`, `property-unsupported`, `vf-missing` if a property that is about to be changed is
   * unknown
   */
  async snapshot(address: VfAddress, options: SnapshotOptions = {}): Promise<VfSnapshot> {
    const { wanted = {}, byOthers = false, withHostConfig = false } = options;
    const driver = await this.#binding.driverOf(address.pciAddress);
    const driverOverride = await this.#binding.overrideOf(address.pciAddress);
    let problem: UnknownVfStateError | undefined;
    // The PF is read first, since that waits for a VF that is being reset; until then, its interface may be missing.
    const vf = await this.#properties.read(address).catch((error: unknown): VfChange => {
      if (!(error instanceof UnknownVfStateError)) throw error;
      problem = error;
      return {};
    });
    const found = await this.#links.find(address.pciAddress);
    const state = found && (await readLinkState(this.#host, found.index, this.#options.ethtool));
    const hostConfig = withHostConfig && found ? await readHostConfig(this.#host, found) : undefined;
    const link = state && { ...state, ...defined({ hostConfig }) };
    const before: VfSnapshot = { vf, ...defined({ driver, driverOverride, link }) };
    const properties = propertiesOf(wanted.vf ?? {});
    if (problem === undefined) await this.#properties.assertComplete(address, properties, vf);
    else if (properties.length > 0 || keepsAddress(wanted, before) || (byOthers && !problem.reportsNone)) throw problem;
    return before;
  }

  /**
   * Sets the requested properties and leaves the others alone; the VF's interface keeps its name. Afterwards the VF is bound
   * to vfio or has an interface. Checks first whether anything rules out the whole request. Each step depends on the VF's
   * current state, so that an interrupted attempt is completed.
   * @throws SriovError `binding-failed`, `interface-missing`, `iommu-group-shared`, `property-unsupported`,
   * `property-refused`, `vf-missing`, `vf-state-unknown`, `restore-incomplete` if the interface could not be restored after
   * the driver was bound
   */
  async configure(address: VfAddress, wanted: VfWanted, before: VfSnapshot): Promise<void> {
    const { pciAddress } = address;
    const { driver, vf = {} } = wanted;
    const toUserSpace = isVfio(driver);
    if (address.pfAddress === undefined) assertNoVfProperties(pciAddress, vf, toUserSpace);
    if (toUserSpace) await this.#binding.assertGroupUsable(pciAddress);
    const current = await this.#binding.driverOf(pciAddress);
    if (keepsAddress(wanted, before) && !isVfio(current)) await this.#properties.assertAddressKnown(address, before.vf);
    const isNewAddress = await this.#properties.set(address, vf, before.vf);
    const kept = vf.hardwareAddress ?? addressToKeep(before);
    if (toUserSpace && kept !== undefined && !isNewAddress) await this.#properties.pinAddress(address, kept);
    // An interrupted attempt may have left the function without a driver.
    await this.#bind(pciAddress, driver ?? current ?? before.driver);
    const isSame = (await this.#binding.driverOf(pciAddress)) === current;
    if (isSame && address.pfAddress !== undefined) await this.#rebindForAddress(pciAddress, vf.hardwareAddress);
    const isRebound = await this.#ensureInterface(pciAddress);
    const isLeft = isSame && !isRebound && driver === undefined && Object.keys(vf).length === 0;
    if (before.link === undefined || isLeft) return;
    const { hardwareAddress: _new, ...link } = before.link;
    const failures = await this.#restoreLink(pciAddress, link);
    // A name that another link has taken does not matter to the pod.
    const grave = failures.filter(({ property }) => property !== 'name');
    if (grave.length > 0) throw incomplete(pciAddress, linkFailures(grave));
  }

  /**
   * Restores the VF, whatever has changed it, and whether its interface was moved back or returned by itself. Can be
   * repeated, and completes an interrupted attempt. A failed step does not stop the others; all failures are thrown at the
   * end. Finally reads the PF's settings back. These belong to the PF and survive the function: if the VF no longer exists
   * but its PF still reports it, they are restored, and everything else is new when the VF returns. A missing NIC with a
   * configuration by the host is not restored until it returns.
   * @throws SriovError `restore-incomplete` with the properties that were not restored; the property is `vf` if the PF does
   * not report the VF
   */
  async restore(
    address: VfAddress,
    before: VfSnapshot,
    { reset = true, changed = {} }: RestoreOptions = {},
  ): Promise<void> {
    const { pciAddress } = address;
    const failures: PropertyFailure[] = [];
    const step = async (property: string, task: () => Promise<void>): Promise<void> => {
      await task().catch((error: unknown) => failures.push(...toFailures(property, error)));
    };
    const isPresent = await this.#binding.isPresent(pciAddress);
    if (!isPresent && before.link?.hostConfig !== undefined)
      throw incomplete(pciAddress, [{ property: 'link.hostConfig', error: missingFunction(pciAddress) }]);
    if (!isPresent && !(await this.#isReported(address))) return;
    const { hardwareAddress: _address, ...properties } = before.vf;
    const isReported = () => failures.every(({ property }) => property !== 'vf');
    await step('vf', async () => void (await this.#properties.set(address, properties)));
    let keptAddress: string | undefined;
    await step('vf', async () => {
      const parts = { host: this.#host, links: this.#links, properties: this.#properties };
      if (isReported()) keptAddress = await restoreAdminAddress(parts, address, before);
    });
    if (keptAddress !== undefined) this.#options.onAddressKept?.(pciAddress, keptAddress);
    if (isPresent) await step('driver', () => this.#restoreDriver(address, before, reset));
    await step('driverOverride', async () => {
      if (!isPresent) return;
      const isRight = (await this.#binding.overrideOf(pciAddress)) === before.driverOverride;
      if (!isRight) await this.#binding.setOverride(pciAddress, before.driverOverride);
    });
    await step('link', async () => {
      if (before.link === undefined || !isPresent) return;
      const refused = await this.#restoreLink(pciAddress, before.link);
      const isRefused = refused.some(({ property }) => property === 'hardwareAddress');
      const isAdministrative = isRefused && (await this.#hasAdminAddress(address));
      const grave = refused.filter(({ property }) => property !== 'hardwareAddress' || !isAdministrative);
      failures.push(...linkFailures(grave));
    });
    const known = new Set(failures.map(({ property }) => property.replace(/^vf\./, '')));
    if (keptAddress !== undefined) known.add('hardwareAddress');
    if (isReported()) await step('vf', () => this.#properties.assertRestored(address, before.vf, changed, known));
    if (failures.length > 0) throw incomplete(pciAddress, failures);
  }

  /**
   * Returns the files and drivers through which containers access the VF in its present state.
   * @throws SriovError `device-node-missing`, `rdma-unusable` with a remedy
   */
  async access({ pciAddress }: VfAddress, { vhost, rdma }: AccessWanted): Promise<VfAccess> {
    const nodes = this.#nodes;
    const driver = await this.#binding.driverOf(pciAddress);
    const vfio = isVfio(driver) ? await nodes.vfio(pciAddress) : undefined;
    const verbs = rdma && vfio === undefined ? await this.#awaitRdma(pciAddress) : undefined;
    const vhostNodes = vhost ? await nodes.vhost() : [];
    const group = vfio && { device: vfio.device, iommuGroup: vfio.iommuGroup };
    return {
      ...defined({ driver, vfio: group, rdmaDevice: verbs?.device }),
      nodes: [...(vfio?.nodes ?? []), ...(verbs?.nodes ?? []), ...vhostNodes],
    };
  }

  /** Returns the current name of the VF's RDMA device: udev renames it some time after it appears. */
  async rdmaDevice({ pciAddress }: VfAddress): Promise<string | undefined> {
    return await this.#nodes.rdmaDevice(pciAddress);
  }

  /** Returns the MTU limits of a VF: see {@link limitsOf}. */
  async mtuLimits({ pciAddress, pfAddress }: VfAddress): Promise<MtuLimit[]> {
    const pf = pfAddress === undefined ? undefined : await this.#links.find(pfAddress);
    return limitsOf(await this.#links.find(pciAddress), pf);
  }

  /** Returns the other devices of the VF's IOMMU group, without bridges: all are assigned to user space together. */
  async groupMembers({ pciAddress }: VfAddress): Promise<string[]> {
    return (await this.#binding.iommuGroup(pciAddress)).others;
  }

  /** Returns the PF's settings for a VF. Nothing else is known about a VF without an interface. @throws UnknownVfStateError */
  async info(address: VfAddress): Promise<VfInfo | undefined> {
    return await this.#properties.info(address);
  }

  /** Reads the PF's settings for all its VFs, by VF index, with one request. @throws UnknownVfStateError */
  async settingsOf(pfAddress: string): Promise<ReadonlyMap<number, VfChange>> {
    return await this.#properties.readAll(pfAddress);
  }

  /**
   * Restores the properties of a VF that its PF has lost. The VF may be in a pod.
   * @param before snapshot from before the claim
   * @throws as `VfProperties.set`
   */
  async setAgain(address: VfAddress, wanted: VfPropertiesWanted, before: VfSnapshot): Promise<void> {
    await this.#properties.set(address, wanted, before.vf);
  }

  /**
   * Sets the link state that the PF enforces for a VF. @throws SriovError `property-unsupported`, `property-refused`;
   * UnknownVfStateError
   */
  async setLinkState(address: VfAddress, linkState: NonNullable<VfChange['linkState']>): Promise<void> {
    await this.#properties.set(address, { linkState });
  }

  /**
   * Binds a driver. User-space drivers other than vfio are replaced by the kernel's choice, since pods get no access through
   * them.
   */
  async #bind(pciAddress: string, driver: string | undefined): Promise<void> {
    if (driver !== 'default' && (isVfio(driver) || !hasNoInterface(driver)))
      return await this.#binding.bind(pciAddress, driver);
    await this.#binding.bindDefault(pciAddress);
  }

  /**
   * Waits for the interface of a function that is not bound to vfio: some drivers create it only some time after their probe.
   * If the driver creates none, binds it once more.
   * @returns whether the driver was bound again
   * @throws SriovError `interface-missing`
   */
  async #ensureInterface(pciAddress: string): Promise<boolean> {
    const driver = await this.#binding.driverOf(pciAddress);
    if (isVfio(driver) || (await this.#interfaceAppears(pciAddress))) return false;
    await this.#binding.rebind(pciAddress);
    if (await this.#interfaceAppears(pciAddress)) return true;
    const message = `${pciAddress} has no interface: its driver ${driver} created none, even after it was bound again`;
    const hint = 'the kernel log says why; no claim gets the device until it has one';
    throw new SriovError('interface-missing', message, { device: pciAddress, retriable: true, hint });
  }

  async #interfaceAppears(pciAddress: string): Promise<boolean> {
    return await poll(this.#options.clock, appears, () => this.#binding.hasInterface(pciAddress));
  }

  /** Rebinds drivers that read the VF's address only when they are bound, such as igbvf. */
  async #rebindForAddress(pciAddress: string, hardwareAddress: string | undefined): Promise<void> {
    const driver = await this.#binding.driverOf(pciAddress);
    if (hardwareAddress === undefined || hasNoInterface(driver)) return;
    const link = await this.#links.find(pciAddress);
    if (link?.hardwareAddress !== hardwareAddress.toLowerCase()) await this.#binding.rebind(pciAddress);
  }

  /** Returns whether the PF has settings for the VF; `true` also if the PF cannot be asked. */
  async #isReported({ pfAddress, vfIndex }: VfAddress): Promise<boolean> {
    if (pfAddress === undefined || vfIndex === undefined) return false;
    // A PF without an interface keeps the settings until it can be asked.
    if ((await this.#links.find(pfAddress)) === undefined) return await this.#binding.isPresent(pfAddress);
    try {
      return (await this.#properties.readAll(pfAddress)).has(vfIndex);
    } catch (error) {
      if (error instanceof UnknownVfStateError) return true;
      throw error;
    }
  }

  async #restoreDriver(address: VfAddress, before: VfSnapshot, reset: boolean): Promise<void> {
    const { pciAddress, pfAddress } = address;
    const { driver } = before;
    if ((await this.#binding.driverOf(pciAddress)) !== driver) return await this.#binding.bind(pciAddress, driver);
    if (pfAddress === undefined || driver === undefined) return;
    if (hasNoInterface(driver)) {
      if (reset && !(await this.#binding.reset(pciAddress))) this.#options.onNotReset?.(pciAddress, driver);
      return;
    }
    if (reset) return await this.#binding.rebind(pciAddress);
    const { hardwareAddress } = before.vf;
    // If the interface had the PF's address, its driver must read that address again.
    const wasKnown = hardwareAddress === before.link?.hardwareAddress;
    if (wasKnown) await this.#rebindForAddress(pciAddress, hardwareAddress);
  }

  /** Returns whether the VF's interface has the address that its PF has set, so that it cannot have another. */
  async #hasAdminAddress(address: VfAddress): Promise<boolean> {
    const { hardwareAddress } = await this.#properties.read(address);
    if (hardwareAddress === undefined) return false;
    return hardwareAddress === (await this.#links.find(address.pciAddress))?.hardwareAddress;
  }

  async #restoreLink(pciAddress: string, wanted: LinkState): Promise<RestoreFailure[]> {
    const driver = await this.#binding.driverOf(pciAddress);
    return hasNoInterface(driver)
      ? []
      : await restoreInterface({ ...this.#options, links: this.#links }, pciAddress, wanted);
  }

  /** Waits for the RDMA device, which drivers create later than the interface. */
  async #awaitRdma(pciAddress: string): Promise<RdmaAccess> {
    const { clock } = this.#options;
    for (const endsAt = clock.nowMs() + appears.forMs; ; await clock.sleep(appears.everyMs)) {
      try {
        return await this.#nodes.rdma(pciAddress);
      } catch (error) {
        if (!(error instanceof SriovError && error.retriable) || clock.nowMs() > endsAt) throw error;
      }
    }
  }
}
