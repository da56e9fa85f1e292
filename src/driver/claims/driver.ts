import type { AllocatedClaim, DraPlugin, PrepareResult, UnprepareResult } from '../../framework/kubeletplugin/index.ts';
import { type ClaimIdentity, formatDeviceKey } from '../../framework/metadata/index.ts';
import { Batch } from '../../lib/batch.ts';
import { type ExclusionVerdict, explainExclusion } from '../../node/inventory/index.ts';
import type { Cidr } from '../../node/netlink/index.ts';
import {
  type ClaimDevices,
  isUserSpace,
  refusal,
  type StoredClaim,
  type StoredDevice,
  type UnrestoredVf,
} from '../model/index.ts';
import type { Store } from '../state/index.ts';
import { mayChange, toVfWanted } from '../vf/vf-wanted.ts';
import { ContainerSpecs, type ContainerSpecsOptions } from './container-specs.ts';
import { DeviceResolver, type DeviceResolverOptions } from './device-resolver.ts';
import { DeviceWork, type DeviceWorkOptions } from './device-work.ts';
import { checkGuarantees } from './guarantees.ts';
import { checkGroups, groupsOf } from './iommu-groups.ts';
import { checkNesting } from './nesting.ts';
import { type PoolAddressesOptions, renewPoolAddresses, withPoolAddresses } from './pool-addresses.ts';
import { PrepareProgress, type PrepareProgressOptions } from './prepare-progress.ts';
import { type PrepareWork, storedOf, toWork } from './prepare-work.ts';
import { checkPorts } from './shared-ports.ts';
import { checkSinglePod } from './single-pod.ts';

export interface DriverOptions
  extends DeviceResolverOptions,
    PrepareProgressOptions,
    ContainerSpecsOptions,
    PoolAddressesOptions,
    DeviceWorkOptions {
  store: Store;
  /** Compares an allocation with its sources: see `checkAllocation`. */
  checkAllocation: (claim: AllocatedClaim, signal: AbortSignal) => Promise<void>;
  /**
   * Checks again which devices are not free for claims. Returns the reasons by PCI address: see `judgeAll` of the inventory.
   */
  judgeOthers: (devices: readonly StoredDevice[]) => Promise<ReadonlyMap<string, ExclusionVerdict>>;
  /** Withdraws the metadata of a claim from its containers: closes its gate, and blanks or removes its files. */
  withdrawMetadata: (claim: ClaimIdentity) => Promise<void>;
  /** Returns whether the driver can see which containers use a claim: see `ClaimMetadata`. */
  isShownByContainers: (claim: ClaimIdentity) => boolean;
  /**
   * Called for each conflict of a claim with another claim of the node that `checkPorts` allows. @param what description of
   * the conflict
   */
  onShared: (claim: AllocatedClaim, what: string) => void;
}

/**
 * Prepares VFs for claims: configures them on the host and stores their original state. Their network data is known only in
 * the pod's sandbox, so their metadata is deferred. The result has only requests whose containers need more than metadata,
 * such as device files. VFs of requests with `adminAccess` belong to other claims or to none: they are reported, but neither
 * changed nor stored. Call the methods with the claims' locks held.
 */
export class Driver implements DraPlugin {
  readonly #options: DriverOptions;
  readonly #resolver: DeviceResolver;
  readonly #work: DeviceWork;
  readonly #specs: ContainerSpecs;
  readonly #progress: PrepareProgress;

  constructor(options: DriverOptions) {
    this.#options = options;
    this.#resolver = new DeviceResolver(options);
    this.#progress = new PrepareProgress(options);
    this.#work = new DeviceWork(options);
    this.#specs = new ContainerSpecs(options, this.#resolver);
  }

  async prepareResourceClaims(
    claims: AllocatedClaim[],
    { signal }: { signal: AbortSignal },
  ): Promise<Map<string, PrepareResult>> {
    try {
      return await this.#prepare(claims, signal);
    } catch (error) {
      return new Map(claims.map(({ identity }) => [identity.uid, { error: error as Error }]));
    }
  }

  async unprepareResourceClaims(claims: ClaimIdentity[]): Promise<Map<string, UnprepareResult>> {
    try {
      return await this.#unprepare(claims);
    } catch (error) {
      return new Map(claims.map(({ uid }) => [uid, error as Error]));
    }
  }

  /** Configures a VF of a prepared claim again, since its PF may have been reset. Skips a VF that may already be in its pod. */
  async reconfigure(claim: { identity: ClaimIdentity }, device: StoredDevice): Promise<void> {
    if (device.attachment === undefined && device.config.attach !== 'observe')
      await this.#work.configure(claim, device);
  }

  /**
   * Prepares claims. Stores each claim up to three times: when its VFs are reserved, before their state is read; when their
   * original state is known, if it is about to change; and together with the framework's record, see `#commit`.
   * @throws StateError
   */
  async #prepare(claims: readonly AllocatedClaim[], signal: AbortSignal): Promise<Map<string, PrepareResult>> {
    const { store, driver } = this.#options;
    using progress = this.#progress.begin(claims);
    const given = new Batch(claims.map((claim) => ({ uid: claim.identity.uid, claim })));
    const { alive: all, errors } = given.map(({ uid, claim }) => {
      checkNesting(driver, claim);
      return toWork(driver, claim, store.claim(uid), progress);
    });
    // Claims that move to another pod come first: their VFs may be attached, under names that they must keep.
    const passing = all.filter(({ isHandedOver }) => isHandedOver);
    const works = [...passing, ...all.filter(({ isHandedOver }) => !isHandedOver)];
    const batch = new Batch(works, errors);
    const together = (step: (work: PrepareWork) => void) => store.together(() => batch.run(step));
    // The node's networks are read once for all claims, which are checked one after the other.
    let networks: Promise<Cidr[]> | undefined;
    const nodeNetworks = () => (networks ??= this.#options.nodeNetworks());
    await batch.each((work) => this.#resolve(work, signal, nodeNetworks));
    together((work) => this.#reserve(work, passing.map(storedOf)));
    await batch.each((work) => this.#snapshotAll(work));
    if (batch.alive.some(changesHost))
      together((work) => {
        if (changesHost(work)) store.putClaim({ ...storedOf(work), state: 'preparing' });
      });
    await batch.each((work) => this.#configureAll(work));
    batch.run((work) => checkGroups(store, work.claim, work.groups));
    const results = new Map<string, PrepareResult>(
      works.map((work) => [work.uid, { devices: work.prepared, commit: () => this.#commit(work) }]),
    );
    for (const [uid, error] of errors) results.set(uid, { error });
    return results;
  }

  /**
   * Marks a claim as prepared, in the transaction in which the framework records the claim.
   * @throws DriverError `device-in-use`; StateError
   */
  #commit(work: PrepareWork): void {
    this.#progress.end(work.uid);
    // Groups are checked again in the claim's transaction, so that only one of two claims gets a group.
    checkGroups(this.#options.store, work.claim, work.groups);
    this.#options.store.putClaim({ ...storedOf(work), state: 'prepared' });
  }

  async #resolve(work: PrepareWork, signal: AbortSignal, nodeNetworks: () => Promise<Cidr[]>): Promise<void> {
    const { claim, known, allocation, progress } = work;
    progress.claimBegins(claim);
    if (work.isAgain) {
      // A prepared claim stays with its pod, even if it is now reserved for other pods; only a claim without any pod is
      // checked.
      if (work.devices.length > 0 && work.podUids.length === 0) checkSinglePod(claim);
      await renewPoolAddresses(claim, work.devices, this.#options.addressPools, signal);
      return this.#checkNuma(work);
    }
    // A claim that is partly prepared was checked before, and its class may have been deleted since.
    const isNew = known?.allocation !== allocation;
    if (isNew) await this.#options.checkAllocation(claim, signal);
    work.devices = await this.#resolver.resolve(claim, signal, nodeNetworks);
    await this.#checkOthers(work, isNew);
    if (work.devices.length > 0) checkSinglePod(claim);
    this.#checkNuma(work);
    work.devices = await withPoolAddresses(claim, work.devices, this.#options, signal);
    if (known === undefined || (known.allocation === allocation && known.state !== 'unpreparing')) return;
    // Either the claim was allocated again while it was prepared, and must keep nothing of its earlier devices; or its
    // unprepare was cut short, perhaps during the reset of a VF.
    work.unrestored = await this.#restoreEarlier(known);
    work.earlier = [];
  }

  /**
   * Checks again whether anything else uses the devices. Device plugins, and programs that open a device, know nothing of
   * claims, and may take a device between two attempts to prepare the claim.
   * @param isNew `false` if the devices were checked before: then an unreadable record of device plugins does not stop the
   * claim
   * @throws DriverError `device-given-out`
   */
  async #checkOthers({ uid, claim, devices }: PrepareWork, isNew: boolean): Promise<void> {
    const { store, judgeOthers } = this.#options;
    // A device of another claim may be open in that claim's pod: the error of `#reserve` names the claim.
    const free = devices.filter(({ pciAddress }) => (store.holderOf(pciAddress)?.identity.uid ?? uid) === uid);
    const verdicts = await judgeOthers(free);
    for (const device of free) {
      const verdict = verdicts.get(device.pciAddress);
      const isUnknown = verdict?.reason === 'device-plugin-unknown';
      if (verdict === undefined || (isUnknown && !isNew)) continue;
      const problem = `: ${device.name} cannot be prepared: ${explainExclusion(verdict)}`;
      const hint = isUnknown
        ? 'run netdra doctor on the node: it names the file and the remedy; the kubelet tries again'
        : 'delete the pod, so that it is scheduled anew; netdra inventory lists the devices that the node offers';
      throw refusal(claim, 'device-given-out', problem, { device: device.name, retriable: true, hint });
    }
  }

  /**
   * Refuses `numa: require` if the driver cannot see which containers use the claim. Also checks a claim that is prepared
   * again, since the start gate may have been changed in between.
   */
  #checkNuma({ claim, devices }: PrepareWork): void {
    if (devices.every(({ config }) => config.numa !== 'require') || this.#options.isShownByContainers(claim.identity))
      return;
    const problem =
      ' has numa: require, which cannot be enforced: with device metadata off and the start gate file, the driver does not see which containers use a claim';
    const hint = 'switch device metadata on, use the start gate hook, or set numa: report';
    throw refusal(claim, 'numa-unenforceable', problem, { hint });
  }

  /** Reserves VFs. This happens before their state is read, since a VF may still be being restored for its earlier claim. */
  #reserve(work: PrepareWork, passing: readonly ClaimDevices[]): void {
    if (work.isHandedOver || !work.isAgain) {
      this.#resolver.checkInterfaces(work.claim, work.devices, passing);
    }
    if (work.isAgain) return;
    // The first snapshot counts: an earlier attempt may have changed the VF.
    const earlier = new Map(work.earlier.map((device) => [formatDeviceKey(device), device]));
    work.devices = work.devices.map((device): StoredDevice => ({ ...earlier.get(formatDeviceKey(device)), ...device }));
    // The check is in one transaction with the claim, so that only one of two claims of a pod gets a variable.
    this.#specs.check(work.claim, work.devices);
    const others = () => this.#options.store.claims();
    checkGuarantees(work.claim, work.devices, others);
    for (const what of checkPorts(work.claim, work.devices, others)) this.#options.onShared(work.claim, what);
    this.#options.store.putClaim({ ...storedOf(work), state: 'preparing' }, work.unrestored);
    this.#work.stored(work.unrestored);
  }

  /**
   * Configures the claim's VFs. If a prepared claim is prepared again after a restart of the kubelet, VFs in their pod stay
   * as they are; the others are configured again, since the PF may have been reset.
   */
  async #configureAll(work: PrepareWork): Promise<void> {
    const { claim, devices, isAgain, progress } = work;
    progress.claimBegins(claim);
    for (const device of devices) {
      progress.deviceBegins(device);
      await (isAgain ? this.reconfigure(claim, device) : this.#work.configure(claim, device));
      progress.deviceReady();
    }
    const complete: StoredDevice[] = [];
    for (const device of devices) {
      // A VF in its pod keeps its device files: the pod's next container must not silently get fewer.
      const known = device.attachment === undefined ? undefined : device.access;
      complete.push({ ...device, access: known ?? (await this.#work.access(claim, device)) });
    }
    work.devices = complete;
    work.groups = await groupsOf(this.#options.control, complete.filter(isUserSpace));
    work.prepared = [...this.#specs.write(storedOf(work)), ...this.#specs.observed(claim)];
  }

  async #snapshotAll(work: PrepareWork): Promise<void> {
    if (work.isAgain) return;
    work.progress.claimBegins(work.claim);
    try {
      await this.#work.awaitDeletions(work.devices);
      const known: StoredDevice[] = [];
      for (const device of work.devices) {
        work.progress.deviceBegins(device);
        known.push(await this.#work.snapshot(work.claim, device));
      }
      work.devices = known;
    } catch (error) {
      // Nothing was changed, so the VFs are free at once. A stored claim that has moved to another pod stays, since the
      // kubelet does not ask again.
      if (work.known === undefined) this.#options.store.deleteClaim(work.uid);
      throw error;
    }
  }

  /**
   * Unprepares claims. A VF that cannot be restored becomes unavailable until it is restored, but its claim is unprepared:
   * otherwise the pod could not end. The claim stays stored until the framework has removed its files, see `#discard`.
   * @returns for each claim, its last step, or the error for which it is still prepared
   * @throws StateError
   */
  async #unprepare(identities: readonly ClaimIdentity[]): Promise<Map<string, UnprepareResult>> {
    const { store } = this.#options;
    const known = new Map(identities.map(({ uid }) => [uid, store.claim(uid)]));
    const batch = new Batch(identities);
    store.setState([...known.keys()], 'unpreparing');
    const unrestored = new Map<string, UnrestoredVf[]>();
    for (const [uid, claim] of known) {
      if (claim !== undefined) unrestored.set(uid, await this.#work.restoreAll(claim.identity, claim.devices));
    }
    // Without `access` the claim was not fully prepared, and its devices may have specs.
    const hasSpec = ({ access }: StoredDevice) => access === undefined || access.nodes.length > 0;
    const withSpecs = identities.filter(({ uid }) => known.get(uid)?.devices.some(hasSpec) ?? true);
    this.#specs.removeDevices(withSpecs.map(({ uid }) => uid));
    batch.run((identity) => this.#specs.removeDialects(identity, known.get(identity.uid)?.devices));
    const discard = (uid: string) => () => this.#discard(uid, unrestored.get(uid) ?? []);
    return new Map(identities.map(({ uid }) => [uid, batch.errors.get(uid) ?? { discard: discard(uid) }]));
  }

  /** Removes a claim, in the transaction in which the framework removes its record. @throws StateError */
  #discard(uid: string, unrestored: UnrestoredVf[]): void {
    this.#options.store.deleteClaim(uid, unrestored);
    this.#work.stored(unrestored);
    this.#progress.end(uid);
  }

  /**
   * Withdraws the metadata of a claim's earlier devices and restores these devices; the claim stays stored. Keeps only the
   * devices that could not be restored: another claim may need the restored ones.
   * @returns VFs that could not be restored
   */
  async #restoreEarlier(claim: StoredClaim): Promise<UnrestoredVf[]> {
    const { store } = this.#options;
    await this.#options.withdrawMetadata(claim.identity);
    store.setState([claim.identity.uid], 'unpreparing');
    const unrestored = await this.#work.restoreAll(claim.identity, claim.devices);
    this.#specs.removeDevices([claim.identity.uid]);
    this.#specs.removeDialects(claim.identity, claim.devices);
    const kept = new Set(unrestored.map(({ device }) => formatDeviceKey(device)));
    const devices = claim.devices.filter((device) => kept.has(formatDeviceKey(device)));
    store.putClaim({ ...claim, state: 'unpreparing', devices });
    return unrestored;
  }
}

/** Returns whether prepare may change one of a claim's VFs. */
function changesHost({ isAgain, devices }: PrepareWork): boolean {
  return !isAgain && devices.some(({ config, before }) => before && mayChange(toVfWanted(config), before));
}
