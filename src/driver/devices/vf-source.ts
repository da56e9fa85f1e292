import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { DeviceAttributes } from '../../framework/metadata/index.ts';
import type { Device, DeviceTaint } from '../../framework/resourceslice/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import {
  deviceAttributes,
  type HeldDevices,
  type HeldFacts,
  Inventory,
  type InventoryReport,
  linkIdentity,
  type NetworkDevice,
} from '../../node/inventory/index.ts';
import type { LinkEthtool, RtnlConnection, VfIdentity, VfInfo } from '../../node/netlink/index.ts';
import {
  DeviceNodes,
  DriverBinding,
  HostLinks,
  type HungWrite,
  hungWriteHint,
  KernelWriter,
  type KernelWriterOptions,
  SimulatedControl,
  SimulatedNic,
  type SimulatedNicOptions,
  SriovError,
  Sysfs,
  type VfAddress,
  VfHardware,
  type WriteFile,
} from '../../node/sriov/index.ts';
import type { VfControl } from '../claims/index.ts';
import type { VfHost } from '../sandbox/index.ts';
import type { StoredClaim, UnrestoredVf } from '../state/index.ts';
import { PolicyFile } from './policy-file.ts';

/** On an otherwise quiet node, devices that appear or vanish are noticed within this time. */
const rescanMs = 2_000;
/** The same on a busy node, for example while pods come and go: reading 80 VFs takes some 35 ms. */
const busyRescanMs = 10_000;
/** Changes that no event reports are noticed within this time. */
const longestRescanMs = 30_000;
/** Scans after a change: the inventory considers a VF lost when it has missed it twice. */
const scansPerChange = 2;
/** Firmware takes a while to enable VFs. */
const vfsOnMs = 120_000;

export interface VfSourceOptions {
  /** Name of the driver: the prefix of its taints. */
  driver: string;
  /** Connection into the host's network namespace. */
  host: RtnlConnection;
  /** For the same namespace. Absent: ethtool settings are not restored. */
  ethtool?: LinkEthtool;
  clock: Clock;
  /** File with an InventoryPolicy. */
  policyPath?: string;
  /** Devices that are prepared for claims now. */
  held: () => HeldDevices;
  /** VFs that are not offered until they are restored. */
  unrestored: () => readonly UnrestoredVf[];
  /** Reports changes of the node's devices and interfaces. Absent: they are polled. */
  watchHost?: (onChange: () => void) => Disposable;
  /** Where sysfs is mounted; default `/sys`. */
  sysfsRoot?: string;
  stateDir: string;
  logger: Logger;
  /** Options for writes to sysfs. */
  kernelWrites?: Pick<KernelWriterOptions, 'end' | 'timeoutMs'>;
}

/** A device whose kernel driver does not return from a write. */
export interface HungDevice extends HungWrite {
  /** Name in its pool; absent if it is not offered, such as a PF. */
  name?: string;
}

/** The node's VFs and NICs, real or simulated, as the publisher, the driver and the sandbox side see them. */
export class VfSource implements VfHost, AsyncDisposable {
  /** Changes VFs from the host side. */
  readonly control: VfControl;
  readonly #inventory: Inventory;
  readonly #policyFile: PolicyFile | undefined;
  readonly #stop = new AbortController();
  #devices: NetworkDevice[] = [];
  /** Devices offered at the last scan. */
  #offered: Device[] = [];
  /** PCI addresses of VFs that no claim holds and whose interface is in another network namespace. */
  #elsewhere: string[] = [];
  /** Exclusions and problems as last logged, so that they are logged once. */
  #reported = '';
  #isListed = false;
  /** Why the last scan failed; absent: it did not. */
  #failure: unknown;
  #watching: Promise<void> | undefined;
  #hostWatch: Disposable | undefined;
  /** Whether changes of the node are reported; otherwise it is scanned at each tick. */
  #isWatched = true;
  /** How many scans are due even without further changes. */
  #scansLeft = 0;
  #scannedAtMs = 0;
  /** Whether the node or claims have changed since the last tick. */
  #isBusy = false;
  #held = '';
  #withdrawn = '';
  readonly #options: VfSourceOptions;
  readonly #links: HostLinks;
  readonly #nic: SimulatedNic | undefined;
  /** For writes that the kernel may never return from. */
  readonly #kernel: KernelWriter;
  #onChange: (() => void) | undefined;
  #keepsTaints = true;

  constructor(options: VfSourceOptions, nic?: SimulatedNic) {
    this.#options = options;
    this.#nic = nic;
    const { host, ethtool, clock, policyPath, sysfsRoot = '/sys', kernelWrites } = options;
    this.#kernel = new KernelWriter({ clock, ...kernelWrites, onChange: (hung) => this.#hungChanged(hung) });
    const write: WriteFile = (path, text, device) => this.#kernel.write(path, text, device);
    const binding = new DriverBinding(sysfsRoot, write);
    this.#links = new HostLinks({ binding, host, clock });
    this.#policyFile = policyPath === undefined ? undefined : new PolicyFile(policyPath);
    const sysfs =
      nic?.sysfs ?? new Sysfs(sysfsRoot, (path, text, device) => this.#kernel.write(path, text, device, vfsOnMs));
    this.#inventory = new Inventory({ sysfs, connection: host, simulated: nic !== undefined, clock });
    const nodes = new DeviceNodes(sysfsRoot);
    const hardware = new VfHardware({ binding, host, clock, nodes, ...(ethtool === undefined ? {} : { ethtool }) });
    this.control = nic === undefined ? hardware : new SimulatedControl();
  }

  /** Whether the node's devices were ever listed; if not, nothing is known of any of them. */
  get isListed(): boolean {
    return this.#isListed;
  }

  /** Why the devices could not be listed last time. */
  get failure(): unknown {
    return this.#failure;
  }

  /**
   * Scans for the first time. Claims can be served and unprepared without a list of devices, so a failure is only logged,
   * and {@link watch} tries again.
   * @throws NetdraError `policy-invalid`
   */
  async start(): Promise<void> {
    await this.#followPolicy();
    await this.#look().catch((error: unknown) => {
      if (!(error instanceof NetdraError)) throw error;
      this.#failed(error, 'error');
    });
  }

  /**
   * Lists the node's devices. Devices of claims stay as they were first seen, because a claim's changes are not
   * properties of the device. So do hung devices, whatever sysfs shows of them meanwhile.
   * @returns whether the offered devices changed
   * @throws NetdraError `policy-invalid` if there is no valid earlier policy; SriovError, NetlinkError
   */
  async scan(): Promise<boolean> {
    await this.#followPolicy();
    return await this.#look();
  }

  async #look(): Promise<boolean> {
    this.#scannedAtMs = this.#options.clock.nowMs();
    const known = new Map(this.#devices.map((device) => [device.pciAddress, device]));
    const hung = [...known.keys()].filter((pciAddress) => this.#hangs(pciAddress));
    const asFound = hung.map((pciAddress): [string, HeldFacts] => [pciAddress, {}]);
    const held: HeldDevices = new Map([...asFound, ...this.#options.held()]);
    const report = await this.#inventory.scan(held);
    this.#log(report);
    const elsewhere = report.excluded.filter(({ reason }) => reason === 'interface-elsewhere');
    this.#elsewhere = elsewhere.map(({ pciAddress }) => pciAddress);
    const seen = report.devices.map((device) =>
      held.has(device.pciAddress) ? (known.get(device.pciAddress) ?? device) : device,
    );
    this.#devices = [...seen, ...this.#hungAndUnseen(seen)].sort((a, b) => (a.pciAddress < b.pciAddress ? -1 : 1));
    const offered = this.offered();
    const changed = !this.#isListed || !isDeepStrictEqual(offered, this.#offered);
    this.#offered = offered;
    this.#isListed = true;
    this.#failure = undefined;
    return changed;
  }

  /** Logs each failure once. */
  #failed(error: unknown, level: 'warn' | 'error'): void {
    this.#scansLeft = scansPerChange;
    const isKnown = this.#failure !== undefined && explain(this.#failure) === explain(error);
    this.#failure = error;
    if (!isKnown) this.#options.logger[level]({ err: error }, 'devices cannot be listed');
  }

  /** Scans whenever something may have changed, until disposed. */
  watch(onChange: () => void): void {
    const { clock } = this.#options;
    const { signal } = this.#stop;
    this.#onChange = onChange;
    // Changes between the first scan and the first tick are not reported.
    this.#scansLeft = scansPerChange;
    const watch = async () => {
      for (;;) {
        await clock.sleep(rescanMs, signal);
        // Before the scan, so that no change after it is missed.
        this.#watchHost();
        try {
          await this.#followPolicy();
          if (this.#isDue() && (await this.#look())) onChange();
        } catch (error) {
          this.#failed(error, 'warn');
        }
      }
    };
    // The sleep rejects on disposal.
    this.#watching ??= watch().catch(() => undefined);
  }

  async [Symbol.asyncDispose]() {
    this.#onChange = undefined;
    this.#hostWatch?.[Symbol.dispose]();
    this.#stop.abort();
    this.#kernel[Symbol.dispose]();
    await this.#watching;
  }

  /** Offered devices, sorted by PCI address. Hung devices have a taint. */
  offered(): Device[] {
    return this.#published().map((device) => ({
      ...{ name: device.name, attributes: deviceAttributes(device) },
      ...(this.#keepsTaints && this.#hangs(device.pciAddress) ? { taints: [this.#hungTaint()] } : {}),
    }));
  }

  /** Devices whose kernel driver does not return from a write. */
  hung(): HungDevice[] {
    return this.#kernel.hung.map((write) => {
      const name = this.#devices.find(({ pciAddress }) => pciAddress === write.device)?.name;
      return { ...write, ...(name === undefined ? {} : { name }) };
    });
  }

  /** For an API server that does not store taints: hung devices that no claim holds are withdrawn instead. */
  withdrawHung(): void {
    this.#keepsTaints = false;
    this.#onChange?.();
  }

  find(name: string): NetworkDevice | undefined {
    return this.#devices.find((device) => device.name === name);
  }

  /**
   * Finds a device that is about to be prepared for a claim.
   * @throws SriovError `device-hangs`; NetdraError `devices-unlisted`
   */
  findUsable(name: string): NetworkDevice | undefined {
    this.#assertListed();
    const hung = this.hung().find((each) => each.name === name);
    if (hung === undefined) return this.find(name);
    const { device, path } = hung;
    throw new SriovError('device-hangs', `${device}: the kernel has not returned from an earlier write to ${path}`, {
      ...{ device, path, retriable: true, hint: hungWriteHint },
    });
  }

  /** @throws NetdraError `devices-unlisted` */
  attributesOf(pciAddress: string): DeviceAttributes {
    this.#assertListed();
    const device = this.#devices.find((each) => each.pciAddress === pciAddress);
    return device === undefined ? {} : deviceAttributes(device);
  }

  linkKey(pciAddress: string): VfIdentity {
    const { interfaceName } = this.#devices.find((device) => device.pciAddress === pciAddress) ?? {};
    const identity = linkIdentity({ pciAddress, simulated: this.#nic !== undefined });
    return { ...identity, ...(interfaceName === undefined ? {} : { interfaceName }) };
  }

  #assertListed(): void {
    if (this.#isListed) return;
    const { hint = 'the driver tries again every two seconds' } =
      this.#failure instanceof NetdraError ? this.#failure : {};
    const details = { cause: this.#failure, retriable: true, hint };
    throw new NetdraError('devices-unlisted', 'the devices of this node could not be listed yet', details);
  }

  #hangs(pciAddress: string): boolean {
    return this.#kernel.hung.some(({ device }) => device === pciAddress);
  }

  /** An unrestored VF is withdrawn, except while it hangs: what can be restored is known when the kernel returns. */
  #published(): NetworkDevice[] {
    const unrestored = new Set(this.#options.unrestored().map(({ device }) => device.pciAddress));
    return this.#devices.filter(({ pciAddress }) => {
      if (!this.#hangs(pciAddress)) return !unrestored.has(pciAddress);
      return this.#keepsTaints || this.#options.held().has(pciAddress);
    });
  }

  #hungTaint(): DeviceTaint {
    return { key: `${this.#options.driver}/hung`, effect: 'NoSchedule' };
  }

  /** A device can be missing from sysfs halfway through an unbind. */
  #hungAndUnseen(seen: readonly NetworkDevice[]): NetworkDevice[] {
    const isSeen = new Set(seen.map(({ pciAddress }) => pciAddress));
    return this.#devices.filter(({ pciAddress }) => this.#hangs(pciAddress) && !isSeen.has(pciAddress));
  }

  #hungChanged(hung: readonly HungWrite[]): void {
    const { logger } = this.#options;
    if (hung.length === 0) logger.info({}, 'the kernel has returned from all writes');
    else logger.error({ hung }, 'the kernel does not return from these writes: their devices are quarantined');
    this.#onChange?.();
  }

  /**
   * Watches the node until its next change. Further messages would cost as much as the first and carry no more information:
   * each pod that comes or goes causes some forty.
   */
  #watchHost(): void {
    const { logger, watchHost } = this.#options;
    const wasWatched = this.#isWatched;
    try {
      this.#hostWatch ??= watchHost?.(() => {
        this.#isBusy = true;
        this.#hostWatch?.[Symbol.dispose]();
        this.#hostWatch = undefined;
      });
      this.#isWatched = this.#hostWatch !== undefined;
    } catch (error) {
      this.#isWatched = false;
      if (wasWatched)
        logger.warn({ err: error }, 'devices are read every two seconds: their changes cannot be watched');
    }
  }

  /** Whether something may have changed and a scan is due. */
  #isDue(): boolean {
    const isUrgent = this.#followStored();
    const sinceMs = this.#options.clock.nowMs() - this.#scannedAtMs;
    const isBusy = this.#isBusy;
    this.#isBusy = false;
    if (this.#isWatched && !isUrgent) {
      if (this.#scansLeft === 0 && sinceMs < longestRescanMs) return false;
      if (isBusy && sinceMs < busyRescanMs) return false;
    }
    this.#scansLeft = Math.max(0, this.#scansLeft - 1);
    return true;
  }

  /** Tracks what a scan depends on besides the node. @returns whether devices are to be withdrawn or offered again */
  #followStored(): boolean {
    const { held, unrestored } = this.#options;
    const [heldBefore, withdrawnBefore] = [this.#held, this.#withdrawn];
    this.#held = JSON.stringify([...held()]);
    const hung = this.#kernel.hung.map(({ device }) => device);
    this.#withdrawn = JSON.stringify([unrestored().map(({ device }) => device.pciAddress), hung]);
    if (this.#held !== heldBefore) this.#isBusy = true;
    const isUrgent = this.#withdrawn !== withdrawnBefore;
    if (this.#isBusy || isUrgent) this.#scansLeft = scansPerChange;
    return isUrgent;
  }

  async #followPolicy(): Promise<void> {
    const { logger, policyPath } = this.#options;
    const fault = await this.#policyFile?.follow((policy) => {
      this.#inventory.policy = policy;
      this.#scansLeft = scansPerChange;
      logger.info({ path: policyPath }, 'inventory policy in force');
    });
    if (fault !== undefined)
      logger.error({ err: fault }, 'inventory policy rejected; the last valid one stays in force');
  }

  #log({ excluded, problems }: InventoryReport): void {
    const { logger } = this.#options;
    const report = JSON.stringify([excluded, problems.map(({ message }) => message)]);
    if (report === this.#reported) return;
    this.#reported = report;
    // A device that could not be read may be readable a moment later. A problem that stays is no reason to scan more often.
    if (problems.length > 0) this.#scansLeft = scansPerChange;
    for (const exclusion of excluded) logger.info({ ...exclusion }, 'device not offered');
    for (const problem of problems) logger.warn({ err: problem }, 'device cannot be read');
  }

  async adminInfo(address: VfAddress): Promise<Omit<VfInfo, 'vfIndex'> | undefined> {
    if (!(this.control instanceof VfHardware)) return undefined;
    if (address.pfAddress !== undefined) return await this.control.info(address);
    // A plain NIC has no PF to ask: it keeps its own address in user space.
    this.#assertListed();
    const { hardwareAddress } = this.#devices.find(({ pciAddress }) => pciAddress === address.pciAddress) ?? {};
    return hardwareAddress === undefined ? undefined : { hardwareAddress };
  }

  async ensureLink(pciAddress: string, withinMs?: number): Promise<void> {
    if (this.#nic === undefined) await this.#links.ensure(pciAddress, withinMs);
    else await this.#nic.ensureVf(pciAddress, withinMs);
  }

  async isUnbound(pciAddress: string): Promise<boolean> {
    return this.#nic === undefined && (await this.#links.isUnbound(pciAddress));
  }

  async reclaimLink(pciAddress: string): Promise<void> {
    const isNew = await (this.#nic?.reclaimVf(pciAddress) ?? this.#links.reclaim(pciAddress));
    if (!isNew) return;
    const { logger } = this.#options;
    logger.warn({ device: pciAddress }, 'VF recreated: the network namespace that it was in cannot be reached');
  }

  /**
   * Recreates simulated VFs that are in another network namespace although no claim holds them: nothing else uses them.
   * A real one may be in use by a CNI plugin and is left where it is.
   */
  async reclaimLost(signal: AbortSignal): Promise<void> {
    if (this.#nic === undefined) return;
    for (const pciAddress of this.#elsewhere) {
      if (signal.aborted) return;
      if (!this.#options.held().has(pciAddress)) await this.reclaimLink(pciAddress);
    }
  }
}

/** Original state of claimed devices, as far as their claims changed it. */
export function heldDevices(claims: readonly StoredClaim[]): HeldDevices {
  const devices = claims.flatMap((claim) => claim.devices);
  return new Map(
    devices.map(({ pciAddress, before, attachment }): [string, HeldFacts] => {
      const link = { ...attachment?.host, ...before?.link };
      const { name, hardwareAddress, mtuBytes } = link;
      return [
        pciAddress,
        {
          ...(before === undefined ? {} : { driver: before.driver }),
          ...(name === undefined ? {} : { interfaceName: name }),
          ...(hardwareAddress === undefined ? {} : { hardwareAddress }),
          ...(mtuBytes === undefined ? {} : { mtuBytes }),
        },
      ];
    }),
  );
}

/** Which VFs are simulated in place of the node's own. */
export interface SimulationSettings {
  /** Absent: the node's own devices are used. */
  simulate: Pick<SimulatedNicOptions, 'pfs' | 'vfsPerPf'> | undefined;
  /** Prefix of all simulated interface names. */
  simulatePrefix: string;
}

/**
 * Finds the devices of this node, after creating them if they are to be simulated. They may not be listed yet.
 * @throws SriovError, NetlinkError if they cannot be simulated; NetdraError `policy-invalid`
 */
export async function openVfSource(settings: SimulationSettings, options: VfSourceOptions): Promise<VfSource> {
  const { host: connection, stateDir } = options;
  const { simulate, simulatePrefix: namePrefix } = settings;
  let nic: SimulatedNic | undefined;
  if (simulate !== undefined) {
    nic = new SimulatedNic({ ...simulate, namePrefix, dir: join(stateDir, 'simulated'), connection });
    await nic.start();
  }
  const source = new VfSource(options, nic);
  await source.start();
  return source;
}
