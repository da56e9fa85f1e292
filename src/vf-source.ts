import { join } from 'node:path';
import type { Logger } from './logger.ts';
import type { DeviceAttributes } from './metadata/index.ts';
import type { RtnlConnection, VfIdentity } from './netlink/index.ts';
import type { OfferedDevice } from './resourceslice/index.ts';
import type { VfHost } from './sandbox/index.ts';
import type { Settings } from './settings.ts';
import { deviceAttributes, Inventory, linkIdentity, SimulatedNic, Sysfs, type VfDevice } from './sriov/index.ts';

export interface VfSourceOptions {
  /** Into the host's network namespace. */
  host: RtnlConnection;
  stateDir: string;
  logger: Logger;
}

/** The node's VFs, real or simulated, as the publisher, the driver and the sandbox side see them. */
export class VfSource implements VfHost {
  readonly #devices: VfDevice[];
  readonly #nic: SimulatedNic | undefined;

  constructor(devices: VfDevice[], nic?: SimulatedNic) {
    this.#devices = devices;
    this.#nic = nic;
  }

  /** What is offered, in the order of PCI addresses. */
  offered(): OfferedDevice[] {
    return this.#devices.map((device) => ({ name: device.name, attributes: deviceAttributes(device) }));
  }

  pciAddressOf(name: string): string | undefined {
    return this.#devices.find((device) => device.name === name)?.pciAddress;
  }

  attributesOf(pciAddress: string): DeviceAttributes {
    const device = this.#devices.find((each) => each.pciAddress === pciAddress);
    return device === undefined ? {} : deviceAttributes(device);
  }

  linkKey(pciAddress: string): VfIdentity {
    return linkIdentity({ pciAddress, simulated: this.#nic !== undefined });
  }

  /** The kernel brings a real VF back when its namespace goes; a simulated one has to be made again. */
  async ensureLink(pciAddress: string): Promise<void> {
    await this.#nic?.ensureVf(pciAddress);
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
  return new VfSource(report.devices, nic);
}
