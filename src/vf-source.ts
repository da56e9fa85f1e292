import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from './clock.ts';
import type { VfControl } from './driver/index.ts';
import type { Logger } from './logger.ts';
import type { DeviceAttributes } from './metadata/index.ts';
import { findVf, type RtnlConnection, type VfIdentity } from './netlink/index.ts';
import { PolicyFile } from './policy-file.ts';
import type { OfferedDevice } from './resourceslice/index.ts';
import type { VfHost } from './sandbox/index.ts';
import type { Settings } from './settings.ts';
import {
  DriverBinding,
  deviceAttributes,
  Inventory,
  type InventoryReport,
  isVfio,
  linkIdentity,
  SimulatedControl,
  SimulatedNic,
  SriovError,
  Sysfs,
  type VfAddress,
  type VfDevice,
  VfHardware,
} from './sriov/index.ts';

/** A namespace that nobody uses any more is taken down in the background, and only then its VFs come back. */
const comesBackMs = 3_000;
const pollMs = 50;
/** VFs that appear or vanish are seen within this time. */
const rescanMs = 2_000;

export interface VfSourceOptions {
  /** Into the host's network namespace. */
  host: RtnlConnection;
  clock: Clock;
  /** File with an InventoryPolicy. */
  policyPath?: string;
  stateDir: string;
  logger: Logger;
}

/** The node's VFs, real or simulated, as the publisher, the driver and the sandbox side see them. */
export class VfSource implements VfHost, AsyncDisposable {
  /** Changes VFs from outside. */
  readonly control: VfControl;
  readonly #inventory: Inventory;
  readonly #policyFile: PolicyFile | undefined;
  readonly #stop = new AbortController();
  #devices: VfDevice[] = [];
  /** What was logged of exclusions and problems, so that it is logged once. */
  #reported = '';
  #watching: Promise<void> | undefined;
  readonly #options: VfSourceOptions;
  readonly #binding = new DriverBinding();
  readonly #nic: SimulatedNic | undefined;

  constructor(options: VfSourceOptions, nic?: SimulatedNic) {
    this.#options = options;
    this.#nic = nic;
    const { host, clock, policyPath } = options;
    this.#policyFile = policyPath === undefined ? undefined : new PolicyFile(policyPath);
    const sysfs = nic?.sysfs ?? new Sysfs();
    this.#inventory = new Inventory({ sysfs, connection: host, simulated: nic !== undefined });
    this.control = nic === undefined ? new VfHardware({ binding: this.#binding, host, clock }) : new SimulatedControl();
  }

  /**
   * Looks which VFs there are.
   * @param isHeld VFs of claims stay as they were first seen: what a claim changes of them is not theirs
   * @returns whether what is offered changed
   */
  async scan(isHeld: (pciAddress: string) => boolean = () => false): Promise<boolean> {
    await this.#policyFile?.follow((policy) => {
      this.#inventory.policy = policy;
    });
    const report = await this.#inventory.scan();
    this.#log(report);
    const known = new Map(this.#devices.map((device) => [device.pciAddress, device]));
    const devices = report.devices.map((device) =>
      isHeld(device.pciAddress) ? (known.get(device.pciAddress) ?? device) : device,
    );
    const changed = !isDeepStrictEqual(devices, this.#devices);
    this.#devices = devices;
    return changed;
  }

  /** Scans again and again until disposed of. */
  watch(isHeld: (pciAddress: string) => boolean, onChange: () => void): void {
    const { clock, logger } = this.#options;
    const { signal } = this.#stop;
    const watch = async () => {
      for (;;) {
        await clock.sleep(rescanMs, signal);
        try {
          if (await this.scan(isHeld)) onChange();
        } catch (error) {
          logger.warn({ err: error }, 'VFs cannot be listed');
        }
      }
    };
    // The sleep rejects at the end.
    this.#watching ??= watch().catch(() => undefined);
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#watching;
  }

  /** What is offered, in the order of PCI addresses. */
  offered(): OfferedDevice[] {
    return this.#devices.map((device) => ({ name: device.name, attributes: deviceAttributes(device) }));
  }

  find(name: string): VfDevice | undefined {
    return this.#devices.find((device) => device.name === name);
  }

  attributesOf(pciAddress: string): DeviceAttributes {
    const device = this.#devices.find((each) => each.pciAddress === pciAddress);
    return device === undefined ? {} : deviceAttributes(device);
  }

  linkKey(pciAddress: string): VfIdentity {
    return linkIdentity({ pciAddress, simulated: this.#nic !== undefined });
  }

  #log({ excluded, problems }: InventoryReport): void {
    const { logger } = this.#options;
    const report = JSON.stringify([excluded, problems.map(({ message }) => message)]);
    if (report === this.#reported) return;
    this.#reported = report;
    for (const exclusion of excluded) logger.info({ ...exclusion }, 'VF not offered');
    for (const problem of problems) logger.warn({ err: problem }, 'PF cannot be read');
  }

  /** What the PF has set for a VF that has no interface. */
  async adminAddress(address: VfAddress): Promise<string | undefined> {
    return this.control instanceof VfHardware ? (await this.control.info(address))?.hardwareAddress : undefined;
  }

  /**
   * The kernel brings a real VF back when its namespace goes; a simulated one has to be made again.
   * @throws SriovError `vf-missing` if a real one that should have an interface stays away
   */
  async ensureLink(pciAddress: string): Promise<void> {
    if (this.#nic !== undefined) return await this.#nic.ensureVf(pciAddress);
    const { host, clock } = this.#options;
    for (const endsAt = clock.nowMs() + comesBackMs; ; await clock.sleep(pollMs)) {
      const driver = await this.#binding.driverOf(pciAddress);
      // Without a kernel driver it has no interface; one that was unplugged has no driver either.
      if (driver === undefined || isVfio(driver)) return;
      if (findVf(await host.links(), this.linkKey(pciAddress)) !== undefined) return;
      if (clock.nowMs() > endsAt) break;
    }
    throw new SriovError('vf-missing', `the interface of ${pciAddress} is not in the host's network namespace`, {
      device: pciAddress,
      retriable: true,
      hint: 'something may still keep the namespace alive that it was in',
    });
  }
}

/**
 * Finds the VFs of this node, after making them if they are to be simulated.
 * @throws SriovError, NetlinkError
 */
export async function openVfSource(settings: Settings, options: VfSourceOptions): Promise<VfSource> {
  const { host: connection, stateDir } = options;
  const { simulate, simulatePrefix: namePrefix } = settings;
  let nic: SimulatedNic | undefined;
  if (simulate !== undefined) {
    nic = new SimulatedNic({ ...simulate, namePrefix, dir: join(stateDir, 'simulated'), connection });
    await nic.start();
  }
  const source = new VfSource(options, nic);
  await source.scan();
  return source;
}
