import { isDeepStrictEqual } from 'node:util';
import type { DeviceAttributes } from '../../framework/metadata/index.ts';
import type { CounterSet, Device } from '../../framework/resourceslice/index.ts';
import { defined } from '../../lib/defined.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import {
  deviceAttributes,
  type ExclusionVerdict,
  type GivenOut,
  Inventory,
  type InventoryOptions,
  type InventoryReport,
  judgeAll,
  type NetworkDevice,
  OpenPeers,
} from '../../node/inventory/index.ts';
import { type HungWrite, VfActivation } from '../../node/sriov/index.ts';
import { HostVfs, type HostVfsSources } from '../vf/host-vfs.ts';
import { ConditionHistory, type ConditionHistoryOptions } from './condition-history.ts';
import {
  type CardCondition,
  type DeviceCondition,
  DeviceConditions,
  type DeviceConditionsOptions,
} from './device-conditions.ts';
import { countDevices, type DeviceCounts } from './device-counts.ts';
import type { DeviceState } from './device-state.ts';
import { type InventoryView, type ViewedDevices, viewInventory } from './inventory-view.ts';
import { KnownDevices } from './known-devices.ts';
import { ListAttributes, type ListAttributesOptions } from './list-attributes.ts';
import { offeredBandwidth, portCounters } from './offered-bandwidth.ts';
import type { PolicySource } from './policy-file.ts';
import { PolicyInForce } from './policy-in-force.ts';
import { ScanSchedule, type ScanScheduleOptions } from './scan-schedule.ts';

export interface DeviceListOptions
  extends DeviceConditionsOptions,
    ScanScheduleOptions,
    ListAttributesOptions,
    HostVfsSources {
  store: ConditionHistoryOptions['store'];
  host: HostVfsSources['host'] & InventoryOptions['connection'];
  devicePlugins?: InventoryOptions['devicePlugins'];
  /** Other DRA drivers on the node; absent: their devices are not looked for. */
  otherDrivers?: { offered(): GivenOut | undefined };
  /** Wall clock for the times of scans. Default: the system's. */
  now?: () => Date;
  /** Source of the inventory policy; absent: no policy, so that all VFs are offered. */
  policy?: PolicySource;
}

/** The node's VFs and NICs, real or simulated: the devices that exist, and those that are offered. */
export class DeviceList implements AsyncDisposable {
  /** Access to the same devices on the host, for attachments and the driver. */
  readonly vfs: HostVfs;
  readonly #options: DeviceListOptions;
  readonly #inventory: Inventory;
  readonly #known: KnownDevices;
  readonly #policy: PolicyInForce;
  readonly #history: ConditionHistory;
  readonly #conditions: DeviceConditions;
  readonly #lists: ListAttributes;
  readonly #schedule: ScanSchedule;
  readonly #stop = new AbortController();
  /** Whether a change has not been reported yet, for example because the store failed. */
  #isUnreported = false;
  /** Devices that the last scan offered. */
  #offered: Device[] = [];
  #watching: Promise<void> | undefined;
  #onChange: (() => void) | undefined;

  constructor(options: DeviceListOptions) {
    this.#options = options;
    const { host, clock, policy, held } = options;
    this.vfs = new HostVfs({
      ...options,
      deviceAt: (pciAddress) => this.#known.at(pciAddress),
      assertListed: () => this.#known.assertListed(),
      onHungChange: (hung) => this.#hungChanged(hung),
      onRatesRefused: (refusal) => this.#inventory.ratesRefused(refusal),
    });
    const { sysfs, isSimulated: simulated } = this.vfs;
    const vfSwitch = new VfActivation({ sysfs, connection: host, clock });
    const { devicePlugins, otherDrivers } = options;
    this.#policy = new PolicyInForce(policy, {
      logger: options.logger,
      withdrawsAll: (newer) => this.#offered.length > 0 && !this.#inventory.offersSome(newer),
    });
    const inForce = () => this.#policy.policy;
    const inventory = { sysfs, connection: host, simulated, policy: inForce, vfSwitch };
    this.#inventory = new Inventory({
      ...inventory,
      ...(devicePlugins && !simulated && { devicePlugins }),
      ...(otherDrivers && { otherDrivers: () => otherDrivers.offered() }),
    });
    this.#history = new ConditionHistory({ now: () => new Date(), ...options });
    this.#conditions = new DeviceConditions(options, {
      hung: () => this.vfs.hungWrites,
      active: () => this.#history.active,
      policy: inForce,
    });
    this.#lists = new ListAttributes(options);
    // A scan that did not know the other drivers' devices is repeated as soon as they are known.
    const others = () => otherDrivers && [...(otherDrivers.offered() ?? ['unknown'])];
    const quarantine = () => [this.#conditions.fingerprint(), ...this.#inventory.refusals, others()].join();
    this.#schedule = new ScanSchedule(options, () => ({ held: held(), quarantine: quarantine() }));
    this.#known = new KnownDevices({
      ...options,
      inventory: this.#inventory,
      isHung: (pciAddress) => this.#conditions.isHung(pciAddress),
      onStart: () => this.#schedule.started(),
      onRead: ({ readings, subjects }) => {
        if (this.#history.observe(readings, subjects)) this.#isUnreported = true;
      },
      onUnsettled: () => this.#schedule.request(),
    });
  }

  /** Whether the node's devices were ever listed. If not, nothing is known about any device. */
  get isListed(): boolean {
    return this.#known.isListed;
  }

  /** Time at which the last successful scan began. */
  get scannedAt(): Date {
    return this.#known.scannedAt;
  }

  /** Reason why the last scan failed; `undefined` if it succeeded. */
  get failure(): unknown {
    return this.#known.failure;
  }

  /** Reason why the newest policy is not in force. The last valid policy stays in force, if there was one. */
  get policyFault(): NetdraError | undefined {
    return this.#policy.fault;
  }

  /** Inputs, besides the node and the store, that determine the offered devices. */
  get state(): DeviceState {
    const { policy, origin: policyOrigin, fault } = this.#policy;
    return {
      ...defined({ policy: policyOrigin && policy, policyOrigin, policyFault: fault && explain(fault) }),
      hungWrites: this.#conditions.hung,
      keepsTaints: this.#conditions.keepsTaints,
      conditions: this.#history.active,
    };
  }

  /** Report of the last successful scan. */
  get report(): Readonly<InventoryReport> {
    return this.#known.report;
  }

  /** Number of problems with reading the node's devices, including a failed scan. */
  get problemCount(): number {
    return this.#known.report.problems.length + (this.#known.failure === undefined ? 0 : 1);
  }

  /**
   * Scans for the first time. Claims can be served and unprepared without a list of devices, so a failure is only logged, and
   * {@link watch} tries again.
   * @throws NetdraError `policy-invalid`
   */
  async start(): Promise<void> {
    await this.scan().catch((error: unknown) => {
      if (!(error instanceof NetdraError) || error.code === 'policy-invalid') throw error;
      this.#known.failed(error, 'error');
    });
  }

  /**
   * Lists the node's devices: see {@link KnownDevices}.
   * @returns whether the offered devices changed
   * @throws NetdraError `policy-invalid`, `policy-refused`, `policy-unread` if there is no valid earlier policy; SriovError,
   * NetlinkError
   */
  async scan(): Promise<boolean> {
    await this.#followPolicy();
    return await this.#scan();
  }

  /**
   * Scans after changes, and periodically, until disposed.
   * @param onChange called when the offered devices or their health may have changed
   * @param onScan called after each scan without a change
   */
  watch(onChange: () => void, onScan: () => void = () => undefined): void {
    const { signal } = this.#stop;
    this.#onChange = onChange;
    // The node is watched only from the first tick on; this request covers earlier changes.
    this.#schedule.request();
    const watch = async () => {
      for (;;) {
        await this.#schedule.tick(signal);
        try {
          await this.#followPolicy();
          const hasNews = this.#schedule.hasNews;
          const isScan = this.#schedule.isDue();
          if (isScan ? await this.#scan() : await this.#look(hasNews)) this.#isUnreported = true;
          if (this.#isUnreported) onChange();
          else if (isScan) onScan();
          this.#isUnreported = false;
        } catch (error) {
          this.#known.failed(error, 'warn');
        }
      }
    };
    // The sleep rejects on disposal.
    this.#watching ??= watch().catch(() => undefined);
  }

  async [Symbol.asyncDispose]() {
    this.#onChange = undefined;
    this.#schedule[Symbol.dispose]();
    this.#stop.abort();
    this.vfs[Symbol.dispose]();
    await this.#watching;
  }

  /** Returns the offered devices, sorted by PCI address. Devices that new claims should avoid have a taint. */
  offered(): Device[] {
    const withdrawn = this.#conditions.withdrawals(this.#known.all);
    const devices = this.#known.all.filter(({ pciAddress }) => !withdrawn.has(pciAddress));
    return devices.map((device) => ({
      name: device.name,
      attributes: this.#lists.offered(deviceAttributes(device)),
      ...offeredBandwidth(device),
      ...this.#conditions.taintsOf(device),
    }));
  }

  /** Returns the bandwidth of the ports that offered devices share. */
  sharedCounters(): CounterSet[] {
    return portCounters(this.#known.all);
  }

  /** Returns the conditions of devices, by device name. Devices without conditions are left out. */
  unhealthy(): Map<string, DeviceCondition[]> {
    const all = this.#known.all.map((device): [string, DeviceCondition[]] => [
      device.name,
      this.#conditions.of(device),
    ]);
    return new Map(all.filter(([, conditions]) => conditions.length > 0));
  }

  /** Returns the node's devices for command-line tools. @throws NetdraError `devices-unlisted` */
  view(claims: ViewedDevices['claims']): InventoryView {
    this.#known.assertListed();
    const { report, all: devices } = this.#known;
    const conditions = this.#conditions;
    return viewInventory({ report, devices, conditions, claims, ...defined({ policyFault: this.state.policyFault }) });
  }

  /** Returns the conditions of cards and single VFs, with texts for operators. */
  cardConditions(): CardCondition[] {
    return this.#conditions.ofCards();
  }

  counts(): DeviceCounts {
    const { report, all: devices } = this.#known;
    const unrestored = this.#options.unrestored().length;
    return countDevices({ report, devices, conditions: this.#conditions, unrestored, held: this.#options.held() });
  }

  /** Stops offering taints or list attributes if the error shows that the API server does not store them. */
  notPublished(error: Error): void {
    if (this.#conditions.learn(error) || this.#lists.learn(error)) this.#onChange?.();
  }

  find(name: string): NetworkDevice | undefined {
    return this.#known.find(name);
  }

  /**
   * Returns a device that is about to be prepared for a claim.
   * @throws SriovError `device-hangs`; NetdraError `devices-unlisted`
   */
  findUsable(name: string): NetworkDevice | undefined {
    this.#known.assertListed();
    const device = this.find(name);
    if (device !== undefined) this.#conditions.check(device.pciAddress);
    return device;
  }

  /**
   * Checks again whether device plugins manage devices, or programs have them or their IOMMU groups open: the last scan may
   * be half a minute old. If so, requests another scan.
   * @returns reasons why a device must not be prepared for a claim, by PCI address; other devices may be prepared
   */
  async judgeOthers(devices: readonly Pick<NetworkDevice, 'pciAddress'>[]): Promise<Map<string, ExclusionVerdict>> {
    const { devicePlugins } = this.#options;
    if (this.vfs.isSimulated) return new Map();
    const verdicts = devicePlugins === undefined ? new Map() : await judgeAll(devicePlugins, devices);
    const { sysfs } = this.vfs;
    const openPeers = new OpenPeers(sysfs, this.#options.held());
    for (const { pciAddress } of devices) {
      const peer = await openPeers.of(this.#known.at(pciAddress) ?? { iommuPeers: [] });
      if (await sysfs.isOpen(pciAddress)) verdicts.set(pciAddress, { reason: 'open-elsewhere' });
      else if (peer !== undefined) verdicts.set(pciAddress, { reason: 'group-open', peer });
    }
    if (verdicts.size > 0) this.#schedule.request();
    return verdicts;
  }

  /** Returns the attributes of a device; an empty object if it is unknown. @throws NetdraError `devices-unlisted` */
  attributesOf(pciAddress: string): DeviceAttributes {
    this.#known.assertListed();
    const device = this.#known.at(pciAddress);
    return device === undefined ? {} : deviceAttributes(device);
  }

  async #scan(): Promise<boolean> {
    const knewOthers = this.report.knowsOtherDrivers;
    return await this.#known.scan(() => {
      const offered = this.offered();
      const isFirst = !this.#known.isListed || (this.report.knowsOtherDrivers && !knewOthers);
      const changed = this.#isUnreported || isFirst || !isDeepStrictEqual(offered, this.#offered);
      this.#offered = offered;
      return changed;
    });
  }

  /**
   * Reads the conditions of cards between two scans, since a busy node is seldom scanned.
   * @param hasNews whether the node has reported a change
   * @returns whether the conditions in force have changed
   */
  async #look(hasNews: boolean): Promise<boolean> {
    const isAsked = hasNews || this.#known.report.readings.some(({ isSilent }) => isSilent);
    const isOther = this.#history.observe(isAsked ? await this.#inventory.readConditions(this.#options.held()) : []);
    this.#isUnreported ||= isOther;
    if (isOther) this.#offered = this.offered();
    return isOther;
  }

  #hungChanged(hung: readonly HungWrite[]): void {
    const { logger } = this.#options;
    if (hung.length === 0) logger.info({}, 'the kernel has returned from all writes');
    else logger.error({ hung }, 'the kernel does not return from these writes: their devices are quarantined');
    this.#onChange?.();
  }

  async #followPolicy(): Promise<void> {
    const { isChanged, isReported, failure } = await this.#policy.follow();
    if (isChanged) this.#schedule.request();
    if (isReported) this.#onChange?.();
    if (failure !== undefined) throw failure;
  }
}
