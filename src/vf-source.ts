import { join } from 'node:path';
import type { Clock } from './clock.ts';
import type { VfControl } from './driver/index.ts';
import type { Logger } from './logger.ts';
import type { DeviceAttributes } from './metadata/index.ts';
import { findVf, type RtnlConnection, type VfIdentity } from './netlink/index.ts';
import type { OfferedDevice } from './resourceslice/index.ts';
import type { VfHost } from './sandbox/index.ts';
import type { Settings } from './settings.ts';
import {
  DriverBinding,
  deviceAttributes,
  Inventory,
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

export interface VfSourceOptions {
  /** Into the host's network namespace. */
  host: RtnlConnection;
  clock: Clock;
  stateDir: string;
  logger: Logger;
}

/** The node's VFs, real or simulated, as the publisher, the driver and the sandbox side see them. */
export class VfSource implements VfHost {
  /** Changes VFs from outside. */
  readonly control: VfControl;
  readonly #devices: VfDevice[];
  readonly #options: VfSourceOptions;
  readonly #binding = new DriverBinding();
  readonly #nic: SimulatedNic | undefined;

  constructor(devices: VfDevice[], options: VfSourceOptions, nic?: SimulatedNic) {
    this.#devices = devices;
    this.#options = options;
    this.#nic = nic;
    const { host, clock } = options;
    this.control = nic === undefined ? new VfHardware({ binding: this.#binding, host, clock }) : new SimulatedControl();
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
  const { host: connection, stateDir, logger } = options;
  const { simulate, simulatePrefix: namePrefix } = settings;
  let nic: SimulatedNic | undefined;
  if (simulate !== undefined) {
    nic = new SimulatedNic({ ...simulate, namePrefix, dir: join(stateDir, 'simulated'), connection });
    await nic.start();
  }
  const sysfs = nic?.sysfs ?? new Sysfs();
  const report = await new Inventory({ sysfs, connection, simulated: nic !== undefined }).scan();
  for (const exclusion of report.excluded) logger.info({ ...exclusion }, 'VF not offered');
  for (const problem of report.problems) logger.warn({ err: problem }, 'PF cannot be read');
  return new VfSource(report.devices, options, nic);
}
