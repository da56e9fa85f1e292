import type { DeviceTaint } from '../../framework/resourceslice/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { HeldDevices } from '../../node/inventory/index.ts';
import { type HungWrite, hungWriteHint, SriovError } from '../../node/sriov/index.ts';
import type { UnrestoredVf } from '../state/index.ts';

/** An API server that drops taints may be upgraded to one that stores them. */
const retryTaintsMs = 3_600_000;

export interface QuarantineOptions {
  clock: Clock;
  /** Name of the driver: the prefix of its taints. */
  driver: string;
  /** Devices that are prepared for claims now. */
  held: () => HeldDevices;
  /** VFs that are not offered until they are restored. */
  unrestored: () => readonly UnrestoredVf[];
}

/** Why a device is withdrawn. */
export interface Withdrawal {
  reason: 'unrestored' | 'hung';
  /** What could not be restored, or the path of a write that the kernel has not returned from. */
  detail: string;
}

/**
 * Keeps devices from new claims: those whose kernel driver hangs in a write, and VFs that could not be restored. A hung
 * device stays offered with a taint; all others are withdrawn.
 * Decision: docs/decisions/0022-hung-devices-are-tainted.md
 */
export class Quarantine {
  readonly #options: QuarantineOptions;
  readonly #hungWrites: () => readonly HungWrite[];
  /** Until when taints are not tried. */
  #noTaintsUntilMs = Number.NEGATIVE_INFINITY;

  /** @param hungWrites writes that the kernel has not returned from */
  constructor(options: QuarantineOptions, hungWrites: () => readonly HungWrite[]) {
    this.#options = options;
    this.#hungWrites = hungWrites;
  }

  get hung(): readonly HungWrite[] {
    return this.#hungWrites();
  }

  /** Whether hung devices have a taint; otherwise they are withdrawn. */
  get keepsTaints(): boolean {
    return this.#options.clock.nowMs() >= this.#noTaintsUntilMs;
  }

  isHung(pciAddress: string): boolean {
    return this.hung.some(({ device }) => device === pciAddress);
  }

  /** For an API server that does not store taints: for an hour, hung devices that no claim holds are withdrawn instead. */
  dropTaints(): void {
    this.#noTaintsUntilMs = this.#options.clock.nowMs() + retryTaintsMs;
  }

  withoutWithdrawn<D extends { pciAddress: string }>(devices: readonly D[]): D[] {
    const withdrawn = this.withdrawn();
    return devices.filter(({ pciAddress }) => !withdrawn.has(pciAddress));
  }

  /**
   * The devices that are withdrawn, by PCI address. An unrestored VF is, except while it hangs: what can be restored is known
   * when the kernel returns.
   */
  withdrawn(): Map<string, Withdrawal> {
    const unrestored = this.#options.unrestored().filter(({ device }) => !this.isHung(device.pciAddress));
    const hung = this.keepsTaints ? [] : this.hung.filter(({ device }) => !this.#options.held().has(device));
    return new Map([
      ...unrestored.map(({ device: { pciAddress }, reason: detail }): [string, Withdrawal] => [
        pciAddress,
        { reason: 'unrestored', detail },
      ]),
      ...hung.map(({ device, path }): [string, Withdrawal] => [device, { reason: 'hung', detail: path }]),
    ]);
  }

  taintsOf(pciAddress: string): { taints?: DeviceTaint[] } {
    if (!this.keepsTaints || !this.isHung(pciAddress)) return {};
    return { taints: [{ key: `${this.#options.driver}/hung`, effect: 'NoSchedule' }] };
  }

  /** @throws SriovError `device-hangs` if the device cannot be prepared for a claim now */
  check(pciAddress: string): void {
    const hung = this.hung.find(({ device }) => device === pciAddress);
    if (hung === undefined) return;
    const { device, path } = hung;
    throw new SriovError('device-hangs', `${device}: the kernel has not returned from an earlier write to ${path}`, {
      ...{ device, path, retriable: true, hint: hungWriteHint },
    });
  }

  /** Differs when other devices are in quarantine. */
  fingerprint(): string {
    const unrestored = this.#options.unrestored().map(({ device }) => device.pciAddress);
    return JSON.stringify([unrestored, this.hung.map(({ device }) => device)]);
  }
}
