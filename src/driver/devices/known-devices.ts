import { isDeepStrictEqual } from 'node:util';
import { explain, NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import {
  emptyReport,
  explainNothingOffered,
  type HeldDevices,
  type HeldFacts,
  type InventoryReport,
  type NetworkDevice,
} from '../../node/inventory/index.ts';
import type { UnrestoredVf } from '../model/index.ts';
import { unsettledDevices } from './held-devices.ts';

export interface KnownDevicesOptions {
  inventory: { scan(held: HeldDevices): Promise<InventoryReport> };
  /** Returns the devices that are prepared for claims now. */
  held: () => HeldDevices;
  /** Returns VFs that are unavailable until they are restored. */
  unrestored: () => readonly UnrestoredVf[];
  isHung: (pciAddress: string) => boolean;
  /** Wall clock for the times of scans. Default: the system's. */
  now?: () => Date;
  /** Called when a scan begins or is repeated. */
  onStart: () => void;
  /** Called with the report of a scan before it is used. An exception fails the scan. */
  onRead: (report: InventoryReport) => void;
  /** Called when another scan should follow soon. */
  onUnsettled: () => void;
  logger: Logger;
}

/**
 * The devices of the node, as the scans found them. Claimed devices stay as they were first seen, because a claim's changes
 * are not properties of the device. Unrestored and hung devices stay as they were, too, whatever sysfs shows.
 */
export class KnownDevices {
  readonly #options: KnownDevicesOptions;
  #all: readonly NetworkDevice[] = [];
  #isListed = false;
  #scannedAt = new Date(0);
  /** Reason why the last scan failed; `undefined` if it succeeded. */
  #failure: unknown;
  /** Report of the last successful scan. */
  #report: InventoryReport = emptyReport();
  /** Fingerprint of the report that was logged last. */
  #logged = '';

  constructor(options: KnownDevicesOptions) {
    this.#options = options;
  }

  /** All devices, sorted by PCI address. */
  get all(): readonly NetworkDevice[] {
    return this.#all;
  }

  /** Whether the node's devices were ever listed. If not, nothing is known about any device. */
  get isListed(): boolean {
    return this.#isListed;
  }

  /** Time at which the last successful scan began. */
  get scannedAt(): Date {
    return this.#scannedAt;
  }

  /** Reason why the last scan failed; `undefined` if it succeeded. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Report of the last successful scan. */
  get report(): Readonly<InventoryReport> {
    return this.#report;
  }

  find(name: string): NetworkDevice | undefined {
    return this.#all.find((device) => device.name === name);
  }

  at(pciAddress: string): NetworkDevice | undefined {
    return this.#all.find((device) => device.pciAddress === pciAddress);
  }

  /** Checks that the node's devices were listed. @throws NetdraError `devices-unlisted` */
  assertListed(): void {
    if (this.#isListed) return;
    const { hint = 'the driver retries every two seconds' } = this.#failure instanceof NetdraError ? this.#failure : {};
    const details = { cause: this.#failure, retriable: true, hint };
    throw new NetdraError('devices-unlisted', 'the devices of this node have not been listed yet', details);
  }

  /**
   * Lists the node's devices.
   * @param follow called when `all` has the new devices; the scan has succeeded when it returns
   * @returns the result of `follow`
   * @throws SriovError, NetlinkError; errors of `onRead` and `follow`
   */
  async scan<T>(follow: () => T): Promise<T> {
    this.#options.onStart();
    const startedAt = this.#options.now?.() ?? new Date();
    const known = new Map(this.#all.map((device) => [device.pciAddress, device]));
    const before = this.#heldNow();
    const report = await this.#options.inventory.scan(before);
    const after = this.#heldNow();
    // If another instance prepared a VF during the scan, the scan may have seen changes that the VF's claim made.
    const isMixed = ({ pciAddress }: NetworkDevice) =>
      !known.has(pciAddress) && !isDeepStrictEqual(before.get(pciAddress), after.get(pciAddress));
    if (report.devices.some(isMixed)) return await this.scan(follow);
    this.#options.onRead(report);
    this.#readReport(report);
    const isHeld = ({ pciAddress }: NetworkDevice) => before.has(pciAddress) || after.has(pciAddress);
    const seen = report.devices.map((device) => (isHeld(device) && known.get(device.pciAddress)) || device);
    const isKept = (device: NetworkDevice) =>
      this.#options.isHung(device.pciAddress) || (report.subjects === undefined && isHeld(device));
    this.#all = [...seen, ...this.#unseen(seen).filter(isKept)].sort((a, b) => (a.pciAddress < b.pciAddress ? -1 : 1));
    const result = follow();
    this.#isListed = true;
    this.#scannedAt = startedAt;
    this.#failure = undefined;
    return result;
  }

  /** Records why a scan failed. Logs the same failure only once. */
  failed(error: unknown, level: 'warn' | 'error'): void {
    this.#options.onUnsettled();
    const isKnown = this.#failure !== undefined && explain(this.#failure) === explain(error);
    this.#failure = error;
    if (!isKnown) this.#options.logger[level]({ err: error }, 'cannot list devices');
  }

  #heldNow(): Map<string, HeldFacts> {
    const { held, unrestored, isHung } = this.#options;
    const hung = this.#all.map(({ pciAddress }) => pciAddress).filter(isHung);
    return unsettledDevices(held(), unrestored(), hung);
  }

  #readReport(report: InventoryReport): void {
    this.#report = report;
    // A new problem may be over a moment later, so another scan follows soon. A known problem is no reason to scan more
    // often.
    if (this.#log(report) && report.problems.length > 0) this.#options.onUnsettled();
  }

  /**
   * Logs why devices are not offered, unless that was logged for the last scan.
   * @returns whether it was logged now
   */
  #log(report: InventoryReport): boolean {
    const { devices, excluded, problems, warnings } = report;
    const { logger } = this.#options;
    const text = JSON.stringify([excluded, problems.map(({ message }) => message), warnings, devices.length === 0]);
    if (text === this.#logged) return false;
    this.#logged = text;
    for (const exclusion of excluded) logger.info({ ...exclusion }, 'device not offered');
    for (const problem of problems) logger.warn({ err: problem }, 'problem with a device');
    for (const warning of warnings) logger.warn({}, warning);
    if (devices.length === 0) logger.warn({ reason: explainNothingOffered(report) }, 'no device is offered');
    return true;
  }

  /**
   * Returns the known devices that a scan has not found. A hung device can be missing from sysfs in the middle of an unbind;
   * a claimed device that cannot be read is not lost.
   */
  #unseen(seen: readonly NetworkDevice[]): NetworkDevice[] {
    const isSeen = new Set(seen.map(({ pciAddress }) => pciAddress));
    return this.#all.filter(({ pciAddress }) => !isSeen.has(pciAddress));
  }
}
