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
  /** Reads again which devices are not free for claims, and why, by PCI address: see `judgeAll` of the inventory. */
  judgeOthers: (devices: readonly StoredDevice[]) => Promise<ReadonlyMap<string, ExclusionVerdict>>;
  /** Withdraws the metadata of a claim from its containers: closes its gate, and blanks or removes its files. */
  withdrawMetadata: (claim: ClaimIdentity) => Promise<void>;
  /** Whether containers show that they use a claim: see `ClaimMetadata`. */
  isShownByContainers: (claim: ClaimIdentity) => boolean;
  /** Called with what a claim shares with another claim of the node although it should not, see `checkPorts`. */
  onShared: (claim: AllocatedClaim, what: string) => void;
}

/**
 * Prepares VFs for claims: configures them from outside and stores their original state. Their state in the pod is known
 * only in its sandbox, so that metadata is deferred. The result has only requests whose containers need more than metadata,
 * such as device files; it is empty for a claim without such requests. VFs of requests with `adminAccess` belong to other
 * claims or to none: they are described, and neither changed nor stored. Call the methods with the claims' locks held.
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

  /**
   * Configures a VF of a prepared claim again as the claim requests, unless it may already be in its pod: its PF may have
   * been reset since.
   */
  async reconfigure(claim: { identity: ClaimIdentity }, device: StoredDevice): Promise<void> {
    if (device.attachment === undefined && device.config.attach !== 'observe')
      await this.#work.configure(claim, device);
  }

  /**
   * Prepares claims. They are stored when their VFs are reserved, before the VFs are read; when the original state of the
   * VFs is known, if it is about to change; and with the framework's record, see `#commit`.
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
    // First those that pass to this pod: their VFs may be attached, under names that they must keep.
    const passing = all.filter(({ isHandedOver }) => isHandedOver);
    const works = [...passing, ...all.filter(({ isHandedOver }) => !isHandedOver)];
    const batch = new Batch(works, errors);
    const together = (step: (work: PrepareWork) => void) => store.together(() => batch.run(step));
    // Read once for all claims, which are checked one after the other.
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
   * Marks a claim as prepared, in the transaction in which the framework records it.
   * @throws DriverError `device-in-use`; StateError
   */
  #commit(work: PrepareWork): void {
    this.#progress.end(work.uid);
    // Once more, in one transaction with the claim, so that only one of two claims gets a group.
    checkGroups(this.#options.store, work.claim, work.groups);
    this.#options.store.putClaim({ ...storedOf(work), state: 'prepared' });
  }

  async #resolve(work: PrepareWork, signal: AbortSignal, nodeNetworks: () => Promise<Cidr[]>): Promise<void> {
    const { claim, known, allocation, progress } = work;
    progress.claimBegins(claim);
    if (work.isAgain) {
      // A prepared claim stays with its pod, whoever else may use it, but there must be one.
      if (work.devices.length > 0 && work.podUids.length === 0) checkSinglePod(claim);
      await renewPoolAddresses(claim, work.devices, this.#options.addressPools, signal);
      return this.#checkNuma(work);
    }
    // A partly prepared claim was checked before, and its class may have been deleted since.
    const isNew = known?.allocation !== allocation;
    if (isNew) await this.#options.checkAllocation(claim, signal);
    work.devices = await this.#resolver.resolve(claim, signal, nodeNetworks);
    await this.#checkOthers(work, isNew);
    if (work.devices.length > 0) checkSinglePod(claim);
    this.#checkNuma(work);
    work.devices = await withPoolAddresses(claim, work.devices, this.#options, signal);
    if (known === undefined || (known.allocation === allocation && known.state !== 'unpreparing')) return;
    // Either it was allocated again while it was prepared, and must keep nothing of its earlier devices; or its unprepare
    // was cut short, perhaps during the reset of a VF.
    work.unrestored = await this.#restoreEarlier(known);
    work.earlier = [];
  }

  /**
   * Checks again who else has the devices: a device plugin, or a program that opens one, does not know of the claim, and may
   * take a device between two attempts to prepare it.
   * @param isNew `false`: the device was checked before, so that an unreadable record does not stop the claim
   * @throws DriverError `device-given-out`
   */
  async #checkOthers({ uid, claim, devices }: PrepareWork, isNew: boolean): Promise<void> {
    const { store, judgeOthers } = this.#options;
    // A device of another claim may be open in its pod: `#reserve` names the claim.
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
   * Checks `numa: require`, also when the claim is prepared again: until then, containers of an earlier start gate have the
   * hook that shows their claim.
   */
  #checkNuma({ claim, devices }: PrepareWork): void {
    if (devices.every(({ config }) => config.numa !== 'require') || this.#options.isShownByContainers(claim.identity))
      return;
    const problem =
      ' has numa: require, which cannot be enforced: with device metadata off and the start gate file, the driver does not see which containers use a claim';
    const hint = 'switch device metadata on, use the start gate hook, or set numa: report';
    throw refusal(claim, 'numa-unenforceable', problem, { hint });
  }

  /** Reserves VFs before they are read: until its earlier claim is unprepared, a VF is still being restored. */
  #reserve(work: PrepareWork, passing: readonly ClaimDevices[]): void {
    if (work.isHandedOver || !work.isAgain) {
      this.#resolver.checkInterfaces(work.claim, work.devices, passing);
    }
    if (work.isAgain) return;
    // The first snapshot counts: an earlier attempt may have changed the VF.
    const earlier = new Map(work.earlier.map((device) => [formatDeviceKey(device), device]));
    work.devices = work.devices.map((device): StoredDevice => ({ ...earlier.get(formatDeviceKey(device)), ...device }));
    // In one transaction with the claim, so that only one of two claims of a pod gets a variable.
    this.#specs.check(work.claim, work.devices);
    const others = () => this.#options.store.claims();
    checkGuarantees(work.claim, work.devices, others);
    for (const what of checkPorts(work.claim, work.devices, others)) this.#options.onShared(work.claim, what);
    this.#options.store.putClaim({ ...storedOf(work), state: 'preparing' }, work.unrestored);
    this.#work.stored(work.unrestored);
  }

  /**
   * Configures the claim's VFs. After a restart of the kubelet, VFs in their pod stay as they are; the others are
   * configured again, since the PF may have been reset.
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
      // Nothing was changed, so the VFs are free at once. A claim that has passed to another pod stays stored, since the
      // kubelet does not ask again.
      if (work.known === undefined) this.#options.store.deleteClaim(work.uid);
      throw error;
    }
  }

  /**
   * Unprepares claims. A VF that cannot be restored does not keep its claim from being unprepared, which would keep the pod
   * from ending: it is unavailable until it is restored. The claim stays stored until the framework has removed its files,
   * see `#discard`.
   * @returns for each claim, its last step, or why it is still prepared
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
    // Without `access` the claim was not fully prepared, and the device may have a spec.
    const hasSpec = ({ access }: StoredDevice) => access === undefined || access.nodes.length > 0;
    const withSpecs = identities.filter(({ uid }) => known.get(uid)?.devices.some(hasSpec) ?? true);
    this.#specs.removeDevices(withSpecs.map(({ uid }) => uid));
    batch.run((identity) => this.#specs.removeDialects(identity, known.get(identity.uid)?.devices));
    const discard = (uid: string) => () => this.#discard(uid, unrestored.get(uid) ?? []);
    return new Map(identities.map(({ uid }) => [uid, batch.errors.get(uid) ?? { discard: discard(uid) }]));
  }

  /** Removes a claim in the transaction in which the framework removes its record. @throws StateError */
  #discard(uid: string, unrestored: UnrestoredVf[]): void {
    this.#options.store.deleteClaim(uid, unrestored);
    this.#work.stored(unrestored);
    this.#progress.end(uid);
  }

  /**
   * Restores the devices of a claim that stays stored, after withdrawing their metadata. It keeps only those that could not
   * be restored: the claim that has its new devices may need the others.
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
