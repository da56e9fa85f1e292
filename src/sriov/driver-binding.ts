import { readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { errnoCode } from '../errors.ts';
import { SriovError } from './errors.ts';

/** PCI base class of bridges: they are in the group, and need no vfio driver. */
const bridgeClass = /^0x06/;

/**
 * Which kernel driver a PCI function has, and how it gets another: `driver_override`, so that no other device with the
 * same ids is touched. Source: kernel Documentation/ABI/testing/sysfs-bus-pci.
 */
export class DriverBinding {
  readonly #root: string;

  /** @param root where sysfs is mounted, writable */
  constructor(root = '/sys') {
    this.#root = root;
  }

  /** `undefined` when no driver is bound. */
  async driverOf(pciAddress: string): Promise<string | undefined> {
    try {
      return basename(await readlink(join(this.#deviceDir(pciAddress), 'driver')));
    } catch (error) {
      if (errnoCode(error) === 'ENOENT') return undefined;
      throw this.#failed(pciAddress, 'cannot read the driver of', error);
    }
  }

  /**
   * Binds the function to a driver, or to none. Does nothing when that is so already.
   * @throws SriovError `binding-failed` with what to do about it
   */
  async bind(pciAddress: string, driver: string | undefined): Promise<void> {
    const current = await this.driverOf(pciAddress);
    if (current === driver) return;
    const dir = this.#deviceDir(pciAddress);
    if (driver !== undefined) await this.#checkLoaded(pciAddress, driver);
    // Before the unbind: nothing else may take the function in between.
    await this.#write(pciAddress, join(dir, 'driver_override'), driver ?? '\n');
    if (current !== undefined) await this.#write(pciAddress, join(dir, 'driver', 'unbind'), pciAddress);
    if (driver === undefined) return;
    await this.#write(pciAddress, join(this.#root, 'bus/pci/drivers_probe'), pciAddress);
    // The override stays only as long as it is needed: after a reboot or a new bind the kernel shall choose.
    await this.#write(pciAddress, join(dir, 'driver_override'), '\n');
    const bound = await this.driverOf(pciAddress);
    if (bound === driver) return;
    throw new SriovError('binding-failed', `${pciAddress} has ${bound ?? 'no driver'} instead of ${driver}`, {
      device: pciAddress,
      retriable: true,
      hint: 'the kernel log says why the driver did not take it',
    });
  }

  /** Lets the kernel choose the driver, as it does when a function appears. Does nothing if one other than vfio is bound. */
  async bindDefault(pciAddress: string): Promise<void> {
    const current = await this.driverOf(pciAddress);
    if (current !== undefined && !isVfio(current)) return;
    const dir = this.#deviceDir(pciAddress);
    await this.#write(pciAddress, join(dir, 'driver_override'), '\n');
    if (current !== undefined) await this.#write(pciAddress, join(dir, 'driver', 'unbind'), pciAddress);
    await this.#write(pciAddress, join(this.#root, 'bus/pci/drivers_probe'), pciAddress);
  }

  /**
   * A group goes to user space as a whole.
   * @returns the number of the group, and the members that are bound to something else than a vfio driver
   */
  async iommuGroup(pciAddress: string): Promise<{ group: string | undefined; foreign: string[] }> {
    const dir = join(this.#deviceDir(pciAddress), 'iommu_group');
    try {
      const group = basename(await readlink(dir));
      const members = await readdir(join(dir, 'devices'));
      const foreign: string[] = [];
      for (const member of members.filter((each) => each !== pciAddress)) {
        if (await this.#isForeign(member)) foreign.push(member);
      }
      return { group, foreign };
    } catch (error) {
      if (errnoCode(error) === 'ENOENT') return { group: undefined, foreign: [] };
      throw this.#failed(pciAddress, 'cannot read the IOMMU group of', error);
    }
  }

  async #isForeign(pciAddress: string): Promise<boolean> {
    const driver = await this.driverOf(pciAddress);
    if (driver === undefined || isVfio(driver)) return false;
    return !bridgeClass.test(await readFile(join(this.#deviceDir(pciAddress), 'class'), 'utf8'));
  }

  async #checkLoaded(pciAddress: string, driver: string): Promise<void> {
    try {
      await readdir(join(this.#root, 'bus/pci/drivers', driver));
    } catch (cause) {
      throw new SriovError('binding-failed', `cannot bind ${pciAddress}: there is no driver ${driver}`, {
        cause,
        device: pciAddress,
        retriable: true,
        hint: `modprobe ${driver}`,
      });
    }
  }

  async #write(pciAddress: string, path: string, text: string): Promise<void> {
    try {
      await writeFile(path, text);
    } catch (error) {
      throw this.#failed(pciAddress, `cannot write ${path} for`, error, path);
    }
  }

  #deviceDir(pciAddress: string): string {
    return join(this.#root, 'bus/pci/devices', pciAddress);
  }

  #failed(pciAddress: string, what: string, cause: unknown, path?: string): SriovError {
    return new SriovError('binding-failed', `${what} ${pciAddress}`, {
      cause,
      device: pciAddress,
      retriable: true,
      ...(path === undefined ? {} : { path }),
      hint: 'sysfs must be mounted writable, and no process may hold the device',
    });
  }
}

/** vfio-pci, and the variants that know more of one kind of device. */
export function isVfio(driver: string): boolean {
  return /vfio/.test(driver);
}
