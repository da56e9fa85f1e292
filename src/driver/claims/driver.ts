import type { AllocatedClaim, DraPlugin, PreparedDevice, PrepareResult } from '../../framework/kubeletplugin/index.ts';
import {
  baseRequest,
  type CdiSpecs,
  type ClaimIdentity,
  claimName,
  type DeviceAttributes,
} from '../../framework/metadata/index.ts';
import { Batch } from '../../lib/batch.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import type { Cidr } from '../../node/netlink/index.ts';
import { isVfio, SriovError, type VfAccess, type VfSnapshot } from '../../node/sriov/index.ts';
import { findUserSpaceProblems } from '../api/config-rules.ts';
import type { DialectFiles } from '../dialects/index.ts';
import { PodDialects } from '../dialects/pod-dialects.ts';
import {
  invalidConfig,
  isUserSpace,
  refusal,
  type StoredClaim,
  type StoredDevice,
  type UnrestoredVf,
} from '../model/index.ts';
import type { Store } from '../state/index.ts';
import { restore, type VfControl, type VfDetacher } from '../vf/index.ts';
import { mayChange, toVfWanted } from '../vf/vf-wanted.ts';
import { DeviceResolver, type DeviceResolverOptions, type PassingClaim } from './device-resolver.ts';
import { checkGuarantees } from './guarantees.ts';
import { checkGroups, groupsOf } from './iommu-groups.ts';
import { checkNesting } from './nesting.ts';
import { PrepareProgress, type PrepareProgressOptions } from './prepare-progress.ts';
import { type PrepareWork, storedOf, toWork } from './prepare-work.ts';
import { checkPorts } from './shared-ports.ts';
import { checkSinglePod } from './single-pod.ts';

export interface DriverOptions extends Omit<DeviceResolverOptions, 'claimsOfPod'>, PrepareProgressOptions {
  store: Store;
  attachments: VfDetacher;
  control: Omit<VfControl, 'setAgain' | 'settingsOf'>;
  /** Compares an allocation with its sources: see `checkAllocation`. */
  checkAllocation: (claim: AllocatedClaim) => Promise<void>;
  /** Withdraws the metadata of a claim from its containers: closes its gate, and blanks or removes its files. */
  withdrawMetadata: (claim: ClaimIdentity) => Promise<void>;
  /** Whether containers show that they use a claim: see `ClaimMetadata`. */
  isShownByContainers: (claim: ClaimIdentity) => boolean;
  /** What a device's ResourceSlice says of it. */
  attributesOf: (pciAddress: string) => DeviceAttributes;
  /** CDI specs for what containers need besides the metadata. */
  deviceSpecs: CdiSpecs;
  /** Files and variables for software that does not read the metadata. */
  dialectFiles: Pick<DialectFiles, 'write' | 'removeClaim'>;
  /** Called with what a claim shares with another claim of the node and should not, see `checkPorts`. */
  onShared: (claim: AllocatedClaim, what: string) => void;
  logger: Logger;
}

/**
 * Prepares VFs for claims: configures them from outside and stores their original state. Their state in the pod is known only
 * in its sandbox, so metadata is deferred. The result has only requests whose containers need more than metadata, such as device
 * files; it is empty for a claim without such requests. VFs of requests with `adminAccess` belong to other claims or to none:
 * they are described, and neither changed nor stored. The methods are to be called with the locks of the claims held.
 */
export class Driver implements DraPlugin {
  readonly #options: DriverOptions;
  readonly #resolver: DeviceResolver;
  readonly #dialects: PodDialects;
  readonly #progress: PrepareProgress;
  /** Why VFs could not be given the interface that their claim needs, by PCI address. */
  readonly #withoutInterface = new Map<string, string>();
  /** By UID: claims whose VFs are ready, until the framework records them. */
  readonly #ready = new Map<string, PrepareWork>();
  /** By UID: claims that have given up all their VFs, with those that could not be restored, until their record is removed. */
  readonly #over = new Map<string, UnrestoredVf[]>();

  constructor(options: DriverOptions) {
    this.#options = options;
    this.#resolver = new DeviceResolver({ ...options, claimsOfPod: (podUid) => options.store.claimsOfPod(podUid) });
    this.#progress = new PrepareProgress(options);
    this.#dialects = new PodDialects({ store: options.store, files: options.dialectFiles });
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

  async unprepareResourceClaims(claims: ClaimIdentity[]): Promise<Map<string, Error | undefined>> {
    try {
      return await this.#unprepare(claims);
    } catch (error) {
      return new Map(claims.map(({ uid }) => [uid, error as Error]));
    }
  }

  /**
   * To be called in the transaction in which the framework records a claim: it is prepared from then on.
   * @throws DriverError `device-in-use`; StateError
   */
  complete({ uid }: ClaimIdentity): void {
    this.#progress.end(uid);
    const work = this.#ready.get(uid);
    this.#ready.delete(uid);
    if (work === undefined) return;
    // Once more, in one transaction with the claim, so that only one of two claims gets a group.
    checkGroups(this.#options.store, work.claim, work.groups);
    this.#options.store.putClaim({ ...storedOf(work), state: 'prepared' });
  }

  /** To be called in the transaction in which the framework removes the record of a claim. @throws StateError */
  forget({ uid }: ClaimIdentity): void {
    const unrestored = this.#over.get(uid) ?? [];
    this.#options.store.deleteClaim(uid, unrestored);
    for (const { device } of unrestored) this.#withoutInterface.delete(device.pciAddress);
    this.#over.delete(uid);
    this.#ready.delete(uid);
    this.#progress.end(uid);
  }

  /**
   * Configures a VF of a prepared claim again as the claim asks, unless it may be in its pod already: its PF may have been
   * reset since.
   */
  async assure(claim: Pick<AllocatedClaim, 'identity'>, device: StoredDevice): Promise<void> {
    if (device.attachment === undefined && device.config.attach !== 'observe') await this.#configure(claim, device);
  }

  /**
   * The claims are stored when their VFs are reserved, which has to come before the VFs are read; when the original state of the
   * VFs is known, if it is going to be changed; and with the framework's record, see `complete`.
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
    // First those that pass to this pod: VFs of theirs may be attached, under names that they have to keep.
    const passing = all.filter(({ isHandedOver }) => isHandedOver);
    const works = [...passing, ...all.filter(({ isHandedOver }) => !isHandedOver)];
    const batch = new Batch(works, errors);
    const together = (step: (work: PrepareWork) => void) => store.together(() => batch.run(step));
    // The claims are checked one after the other: for all of them one look at the node is enough.
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
    batch.run((work) => {
      checkGroups(store, work.claim, work.groups);
      this.#ready.set(work.uid, work);
    });
    const results = new Map<string, PrepareResult>(works.map(({ uid, prepared }) => [uid, { devices: prepared }]));
    for (const [uid, error] of errors) results.set(uid, { error });
    return results;
  }

  async #resolve(work: PrepareWork, signal: AbortSignal, nodeNetworks: () => Promise<Cidr[]>): Promise<void> {
    const { claim, known, allocation, progress } = work;
    progress.claimBegins(claim);
    if (work.isAgain) return this.#checkNuma(work);
    // A partly prepared claim was checked before, and its class may have been deleted since.
    if (known?.allocation !== allocation) await this.#options.checkAllocation(claim);
    work.devices = await this.#resolver.resolve(claim, signal, nodeNetworks);
    if (work.devices.length > 0) checkSinglePod(claim);
    this.#checkNuma(work);
    if (known === undefined || (known.allocation === allocation && known.state !== 'unpreparing')) return;
    // It was allocated again while it was prepared: it must keep nothing of its earlier devices. Or its unprepare was cut short,
    // perhaps during the reset of a VF.
    work.unrestored = await this.#restoreEarlier(known);
    work.earlier = [];
  }

  /** Also when it is prepared again: until it was, containers of an earlier start gate have the hook that shows its claim. */
  #checkNuma({ claim, devices }: PrepareWork): void {
    if (devices.every(({ config }) => config.numa !== 'require') || this.#options.isShownByContainers(claim.identity))
      return;
    const problem =
      ' has numa: require, and with device metadata off and the start gate file no container shows its claims';
    const hint = 'switch device metadata on, use the start gate hook, or set numa: report';
    throw refusal(claim, 'numa-unenforceable', problem, { hint });
  }

  /** Before VFs are read: until its earlier claim is unprepared, a VF is still being restored. */
  #reserve(work: PrepareWork, passing: readonly PassingClaim[]): void {
    if (work.isHandedOver || !work.isAgain) {
      this.#resolver.checkInterfaceNames(work.claim, work.devices, passing);
    }
    if (work.isAgain) return;
    // The first snapshot counts: an earlier attempt may have changed the VF.
    const earlier = new Map(work.earlier.map((device) => [device.pciAddress, device]));
    work.devices = work.devices.map((device): StoredDevice => ({ ...earlier.get(device.pciAddress), ...device }));
    // In one transaction with the claim, so that only one of two claims of a pod gets a variable.
    this.#dialects.check(work.claim, work.devices);
    const others = () => this.#options.store.claims();
    checkGuarantees(work.claim, work.devices, others);
    for (const what of checkPorts(work.claim, work.devices, others)) this.#options.onShared(work.claim, what);
    this.#options.store.putClaim({ ...storedOf(work), state: 'preparing' }, work.unrestored);
    for (const { device } of work.unrestored) this.#withoutInterface.delete(device.pciAddress);
  }

  /**
   * After a restart of the kubelet, VFs that are in their pod stay as they are. The others are configured again, since the PF
   * may have been reset.
   */
  async #configureAll(work: PrepareWork): Promise<void> {
    const { claim, devices, isAgain, progress } = work;
    progress.claimBegins(claim);
    for (const device of devices) {
      progress.deviceBegins(device);
      await (isAgain ? this.assure(claim, device) : this.#configure(claim, device));
      progress.deviceReady();
    }
    const complete: StoredDevice[] = [];
    for (const device of devices) {
      // A VF in its pod keeps its device files: the pod's next container must not silently get fewer.
      const known = device.attachment === undefined ? undefined : device.access;
      complete.push({ ...device, access: known ?? (await this.#access(claim, device)) });
    }
    work.devices = complete;
    work.groups = await groupsOf(this.#options.control, complete.filter(isUserSpace));
    work.prepared = [...this.#describe(storedOf(work)), ...this.#observed(claim)];
  }

  async #snapshotAll(work: PrepareWork): Promise<void> {
    if (work.isAgain) return;
    work.progress.claimBegins(work.claim);
    try {
      const known: StoredDevice[] = [];
      for (const device of work.devices) {
        work.progress.deviceBegins(device);
        const before = device.before ?? (await this.#snapshot(device));
        await this.#checkMtu(work.claim, device, before);
        known.push({ ...device, before });
      }
      work.devices = known;
    } catch (error) {
      // Nothing was changed, so the VFs are free at once. A claim that has passed to another pod stays stored, since the
      // kubelet does not ask again.
      if (work.known === undefined) this.#options.store.deleteClaim(work.uid);
      throw error;
    }
  }

  /** Also if the claim changes nothing from outside: a CNI plugin may. */
  async #snapshot(device: StoredDevice): Promise<VfSnapshot> {
    const byOthers = (device.config.attach ?? 'netlink') !== 'netlink';
    return await this.#options.control.snapshot(device, { wanted: toVfWanted(device.config), byOthers });
  }

  /** @throws DriverError `config-invalid`; without an interface the MTU is only reported */
  async #checkMtu(claim: AllocatedClaim, device: StoredDevice, before: VfSnapshot): Promise<void> {
    const { mtu, driver = before.driver ?? 'kernel' } = device.config;
    if (mtu === undefined || isVfio(driver)) return;
    for (const { minBytes, maxBytes, of } of await this.#options.control.mtuLimits(device)) {
      if (mtu >= minBytes && mtu <= maxBytes) continue;
      const limits = `is not within ${minBytes} and ${maxBytes}, which ${of} allows device ${device.name}`;
      throw invalidConfig(claim, [`mtu: ${mtu} ${limits}; a VF can have no more than its PF`]);
    }
  }

  async #configure(claim: Pick<AllocatedClaim, 'identity'>, device: StoredDevice): Promise<void> {
    const { store, control } = this.#options;
    const { before, pciAddress } = device;
    const wanted = toVfWanted(device.config);
    if (before === undefined) return;
    // It gets `auto` when the LACP partner of its PF is back.
    if (device.isSilenced) delete wanted.vf?.linkState;
    const isToUserSpace = wanted.driver !== undefined && wanted.driver !== 'default';
    const getsInterface = before.driver === undefined || (isVfio(before.driver) && wanted.driver === 'default');
    if (isToUserSpace || getsInterface) {
      checkGroups(store, claim, await groupsOf(control, [device]), isToUserSpace);
    }
    try {
      await control.configure(device, wanted, before);
      this.#withoutInterface.delete(pciAddress);
    } catch (error) {
      const isUnusable = error instanceof SriovError && error.code === 'interface-missing';
      if (isUnusable) this.#withoutInterface.set(pciAddress, explain(error));
      throw error;
    }
  }

  async #access(claim: AllocatedClaim, device: StoredDevice): Promise<VfAccess> {
    const { vhost = false, rdma = false } = device.config;
    const access = await this.#options.control.access(device, { vhost, rdma });
    if (access.vfio === undefined) return access;
    // Checked again, for a VF that an administrator has bound to vfio and a claim that leaves the driver alone.
    const problems = findUserSpaceProblems(device.config, access.driver ?? 'vfio');
    if (problems.length > 0) throw invalidConfig(claim, problems);
    return access;
  }

  /** Writes CDI specs. @returns the devices of those requests that have some: the framework knows those of the others */
  #describe(claim: Pick<StoredClaim, 'identity' | 'podUids' | 'devices'>): PreparedDevice[] {
    const { uid } = claim.identity;
    const dialectIds = new Map(this.#dialects.layDown(claim));
    const prepared: PreparedDevice[] = [];
    for (const device of claim.devices) {
      const { request, pool, name } = device;
      const dialectId = dialectIds.get(baseRequest(request));
      // With the first device: a container with the request has all of its devices.
      dialectIds.delete(baseRequest(request));
      const cdiDeviceIds = [...this.#writeSpec(uid, device), ...(dialectId === undefined ? [] : [dialectId])];
      prepared.push({ requests: [request], poolName: pool, deviceName: name, cdiDeviceIds, metadata: 'deferred' });
    }
    const withSpecs = new Set(prepared.flatMap((each) => (each.cdiDeviceIds.length > 0 ? each.requests : [])));
    return prepared.filter(({ requests }) => requests.some((request) => withSpecs.has(request)));
  }

  #observed(claim: AllocatedClaim): PreparedDevice[] {
    return this.#resolver.observed(claim).map(({ request, pool, name, pciAddress }) => {
      const metadata = { attributes: this.#options.attributesOf(pciAddress) };
      return { requests: [request], poolName: pool, deviceName: name, cdiDeviceIds: [], metadata };
    });
  }

  /** @returns the CDI device id for the device's files, if it has any */
  #writeSpec(claimUid: string, { name, access }: StoredDevice): string[] {
    const { deviceSpecs } = this.#options;
    const nodes = [...new Set(access?.nodes)];
    if (nodes.length === 0) return [];
    deviceSpecs.write(claimUid, name, { deviceNodes: nodes.map((path) => ({ path, permissions: 'rw' })) });
    return [deviceSpecs.deviceId(claimUid, name)];
  }

  /**
   * A VF that cannot be restored does not keep its claim from being unprepared, which
   * would keep the pod from ending: it is unavailable until it is restored. The claim stays stored until the framework has
   * removed its files, see `forget`.
   * @returns for each claim, why it is still prepared
   * @throws StateError
   */
  async #unprepare(identities: readonly ClaimIdentity[]): Promise<Map<string, Error | undefined>> {
    const { store, deviceSpecs } = this.#options;
    const known = new Map(identities.map(({ uid }) => [uid, store.claim(uid)]));
    const batch = new Batch(identities);
    store.setState([...known.keys()], 'unpreparing');
    for (const [uid, claim] of known) {
      if (claim !== undefined) this.#over.set(uid, await this.#restoreAll(claim.identity, claim.devices));
    }
    // Or may have one: their claim was not fully prepared.
    const hasSpec = ({ access }: StoredDevice) => access === undefined || access.nodes.length > 0;
    const withSpecs = identities.filter(({ uid }) => known.get(uid)?.devices.some(hasSpec) ?? true);
    deviceSpecs.removeClaims(withSpecs.map(({ uid }) => uid));
    batch.run((identity) => this.#dialects.remove(known.get(identity.uid) ?? { identity }));
    return new Map(identities.map(({ uid }) => [uid, batch.errors.get(uid)]));
  }

  /** Restores the devices of a claim that stays stored, after withdrawing their metadata. @returns VFs that are withdrawn */
  async #restoreEarlier(claim: StoredClaim): Promise<UnrestoredVf[]> {
    const { store, deviceSpecs } = this.#options;
    await this.#options.withdrawMetadata(claim.identity);
    store.setState([claim.identity.uid], 'unpreparing');
    const unrestored = await this.#restoreAll(claim.identity, claim.devices);
    deviceSpecs.removeClaims([claim.identity.uid]);
    this.#dialects.remove(claim);
    return unrestored;
  }

  async #restoreAll(identity: ClaimIdentity, devices: readonly StoredDevice[]): Promise<UnrestoredVf[]> {
    const { attachments, control, logger } = this.#options;
    const unrestored: UnrestoredVf[] = [];
    for (const stored of devices) {
      const device = { ...stored };
      const fields = { claim: claimName(identity), device: device.name };
      const lacking = this.#withoutInterface.get(device.pciAddress);
      try {
        await restore({ attachments, control }, identity.uid, device);
        if (lacking === undefined) continue;
        logger.error({ ...fields, reason: lacking }, 'VF is unavailable until it can have an interface');
        unrestored.push({ device: { ...device, lacksInterface: true }, reason: lacking });
      } catch (error) {
        logger.error({ ...fields, err: error }, 'VF is unavailable until it is restored');
        unrestored.push({ device, reason: explain(error) });
      }
    }
    return unrestored;
  }
}

/** Whether prepare may change one of a claim's VFs. */
function changesHost({ isAgain, devices }: PrepareWork): boolean {
  return !isAgain && devices.some(({ config, before }) => before && mayChange(toVfWanted(config), before));
}
