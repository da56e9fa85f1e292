import { readdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Clock, systemClock } from '../../lib/clock.ts';
import type { ErrorDetails } from '../../lib/errors.ts';
import { poll } from '../../lib/poll.ts';
import { whileBusy } from '../../lib/while-busy.ts';
import { SriovError } from './errors.ts';
import { attempt, linkTarget, listOptionalDir, readOptionalText, readText } from './sysfs-files.ts';
import { isBusy, writeHint } from './write-hints.ts';

/** PCI base class of bridges: they can be members of an IOMMU group, but need no vfio driver. */
const bridgeClass = /^0x06/;
/** Time for a bound driver to become visible, and interval of checks, ms. */
const shows = { forMs: 1_000, everyMs: 50 };
/** Text that clears `driver_override`. */
const noOverride = '\n';

/**
 * Writes a file. @param device PCI address of the device that the write is for
 * @throws the Node.js error of a write that the kernel refuses; SriovError `device-hangs`
 */
export type WriteFile = (path: string, text: string, device: string) => Promise<void>;

/** File of a PF that controls whether the kernel chooses drivers for its VFs. */
const autoprobe = 'sriov_drivers_autoprobe';

/** An IOMMU group, as seen by one of its devices. */
export interface IommuGroup {
  /** Number of the group; `undefined` if the device has none. */
  group: string | undefined;
  /** Other members of the group, without bridges. */
  others: string[];
  /** Other members that the kernel uses, or may use: the group cannot be assigned to user space then. */
  foreign: string[];
}

/**
 * Reads and changes the kernel driver of a PCI function. Uses `driver_override`, so that no other device with the same IDs is
 * affected. All methods throw SriovError `sysfs-unreadable`.
 * Source: kernel Documentation/ABI/testing/sysfs-bus-pci.
 */
export class DriverBinding {
  readonly #root: string;
  readonly #writeFile: WriteFile;
  readonly #clock: Clock;

  /**
   * @param root mount point of sysfs, which must be writable
   * @param write function for files on whose content the kernel acts
   */
  constructor(root = '/sys', write: WriteFile = (path, text) => writeFile(path, text), clock: Clock = systemClock) {
    this.#root = root;
    this.#writeFile = write;
    this.#clock = clock;
  }

  /** Returns whether the function exists: VFs can be disabled, and cards unplugged. */
  async isPresent(pciAddress: string): Promise<boolean> {
    return (await listOptionalDir(this.#deviceDir(pciAddress))) !== undefined;
  }

  /** Returns the bound driver; `undefined` if there is none. */
  async driverOf(pciAddress: string): Promise<string | undefined> {
    const target = await linkTarget(join(this.#deviceDir(pciAddress), 'driver'));
    return target && basename(target);
  }

  /** Returns whether the function has an interface in any network namespace: its directory `net` is visible in all of them. */
  async hasInterface(pciAddress: string): Promise<boolean> {
    return (await listOptionalDir(join(this.#deviceDir(pciAddress), 'net'))) !== undefined;
  }

  /**
   * Returns the content of `driver_override`, which an administrator may have set, for example with driverctl; `undefined` if
   * it is empty.
   */
  async overrideOf(pciAddress: string): Promise<string | undefined> {
    const text = await readOptionalText(join(this.#deviceDir(pciAddress), 'driver_override'));
    return text === undefined || ['', '(null)'].includes(text) ? undefined : text;
  }

  async setOverride(pciAddress: string, driver: string | undefined): Promise<void> {
    await this.#write(pciAddress, join(this.#deviceDir(pciAddress), 'driver_override'), driver ?? noOverride);
  }

  /**
   * Binds the function to a driver, or to none, unless it already is. Clears `driver_override` afterwards, so that the kernel
   * chooses after a reboot or a new bind.
   * @throws SriovError `binding-failed` with a remedy
   */
  async bind(pciAddress: string, driver: string | undefined): Promise<void> {
    const current = await this.driverOf(pciAddress);
    if (current === driver) return;
    if (driver !== undefined) await this.#checkLoaded(pciAddress, driver);
    // The override is set before the unbind, so that no other driver takes the function in between.
    await this.setOverride(pciAddress, driver);
    await this.#unbind(pciAddress, current);
    if (driver === undefined) return;
    await this.#probe(pciAddress);
    const bound = await this.#boundTo(pciAddress, (found) => found === driver);
    await this.setOverride(pciAddress, undefined);
    if (bound === driver) return;
    const message = `${pciAddress} has ${bound ?? 'no driver'} instead of ${driver}`;
    throw failed(pciAddress, message, { hint: 'the kernel log says why the driver did not take it' });
  }

  /**
   * Binds the function to the driver that the kernel chooses, as for a new function. Does nothing if the bound driver creates
   * interfaces.
   * @throws SriovError `interface-missing` if the kernel chooses no driver, or a driver that creates no interfaces;
   * `binding-failed` if the kernel chooses no driver for any VF of the PF, and the function is then left alone
   */
  async bindDefault(pciAddress: string): Promise<void> {
    const current = await this.driverOf(pciAddress);
    if (!hasNoInterface(current)) return;
    if (await this.#isNeverProbed(pciAddress)) {
      const override = await this.overrideOf(pciAddress);
      if (!hasNoInterface(override)) return await this.bind(pciAddress, override);
      throw await this.#neverProbed(pciAddress);
    }
    await this.setOverride(pciAddress, undefined);
    await this.#unbind(pciAddress, current);
    await this.#probe(pciAddress);
    const bound = await this.#boundTo(pciAddress, (found) => !hasNoInterface(found));
    if (!hasNoInterface(bound)) return;
    const hint =
      bound === undefined
        ? 'load the kernel driver of the card, such as iavf, ixgbevf or igbvf; if it is loaded, the kernel log says why its probe failed'
        : `${bound} claims the ids of the device: take them from its module option ids, or write them to its remove_id`;
    const message = `the kernel gives ${pciAddress} ${bound ?? 'no driver'}, so that it has no interface`;
    throw new SriovError('interface-missing', message, { device: pciAddress, retriable: true, hint });
  }

  /**
   * Unbinds the driver and binds it again, which resets the function. Keeps the content of `driver_override`. If no driver is
   * bound, binds the driver that the kernel chooses.
   * @throws SriovError `binding-failed`; `function-in-use` for a PF that has VFs, since they would vanish
   */
  async rebind(pciAddress: string): Promise<void> {
    const driver = await this.driverOf(pciAddress);
    if (driver === undefined) return await this.bindDefault(pciAddress);
    await this.#checkNoVfs(pciAddress);
    const override = await this.overrideOf(pciAddress);
    // The override is set before the unbind, so that no other driver takes the function in between.
    await this.setOverride(pciAddress, driver);
    await this.#unbind(pciAddress, driver);
    await this.bind(pciAddress, driver);
    if (override !== undefined) await this.setOverride(pciAddress, override);
  }

  /**
   * Resets a function by a method that the kernel chooses. Some drivers do not reset a function when they are bound.
   * @returns `false` if the function has no reset method
   * @throws SriovError `binding-failed`
   * Source: kernel Documentation/ABI/testing/sysfs-bus-pci, `reset`.
   */
  async reset(pciAddress: string): Promise<boolean> {
    const path = join(this.#deviceDir(pciAddress), 'reset');
    const attributes = await listOptionalDir(this.#deviceDir(pciAddress));
    if (attributes?.includes('reset') !== true) return false;
    await this.#write(pciAddress, path, '1');
    return true;
  }

  /**
   * Returns the IOMMU group of a function. A group can only be assigned to user space as a whole.
   * @throws SriovError `sysfs-unreadable` if its members cannot be listed
   */
  async iommuGroup(pciAddress: string): Promise<IommuGroup> {
    const link = join(this.#deviceDir(pciAddress), 'iommu_group');
    const target = await linkTarget(link);
    if (target === undefined) return { group: undefined, others: [], foreign: [] };
    const dir = join(link, 'devices');
    const members = await attempt(dir, () => readdir(dir));
    const others: string[] = [];
    const foreign: string[] = [];
    for (const member of members.filter((each) => each !== pciAddress).sort()) {
      const use = await this.#useOf(member);
      if (use === 'bridge') continue;
      others.push(member);
      if (use === 'kernel') foreign.push(member);
    }
    return { group: basename(target), others, foreign };
  }

  /** Checks that a function can be assigned to user space. @throws SriovError `iommu-group-shared`, `binding-failed` */
  async assertGroupUsable(pciAddress: string): Promise<void> {
    const { group, foreign } = await this.iommuGroup(pciAddress);
    if (foreign.length > 0) {
      const message = `${pciAddress} shares IOMMU group ${group} with ${foreign.join(', ')}`;
      throw new SriovError('iommu-group-shared', message, {
        device: pciAddress,
        hint: 'a group goes to user space as a whole: enable ACS in the firmware, or use this card in kernel mode',
      });
    }
    // Without an IOMMU, vfio creates a group when the device is bound, if the administrator has allowed that.
    const noIommuMode = join(this.#root, 'module/vfio/parameters/enable_unsafe_noiommu_mode');
    if (group !== undefined || (await readOptionalText(noIommuMode)) === 'Y') return;
    throw new SriovError('binding-failed', `${pciAddress} has no IOMMU group, which vfio needs`, {
      device: pciAddress,
      hint: 'switch the IOMMU on, in the firmware and on Intel machines with intel_iommu=on; without one, only vfio enable_unsafe_noiommu_mode=1',
    });
  }

  /**
   * Returns the use of a group member. pci-stub reserves devices that must not be used, so it counts like vfio. A member that
   * is unreadable, or not a PCI function, may be in use.
   */
  async #useOf(member: string): Promise<'bridge' | 'kernel' | 'none'> {
    try {
      const driver = await this.driverOf(member);
      // The class is read last: it proves that the member existed when it had no driver.
      const classCode = await readText(join(this.#deviceDir(member), 'class'));
      if (bridgeClass.test(classCode)) return 'bridge';
      return driver === undefined || driver === 'pci-stub' || isVfio(driver) ? 'none' : 'kernel';
    } catch {
      return 'kernel';
    }
  }

  /** Returns whether the kernel binds VFs of this PF only by `driver_override`. Source: Linux `pci_device_can_probe`. */
  async #isNeverProbed(pciAddress: string): Promise<boolean> {
    return (await readOptionalText(join(this.#deviceDir(pciAddress), 'physfn', autoprobe)))?.trim() === '0';
  }

  async #neverProbed(pciAddress: string): Promise<SriovError> {
    const pf = basename((await linkTarget(join(this.#deviceDir(pciAddress), 'physfn'))) ?? '');
    // Without an override, the kernel refuses to bind these VFs by hand, too.
    const hint =
      `write 1 to /sys/bus/pci/devices/${pf}/${autoprobe}, or the kernel driver's name to driver_override of ` +
      `${pciAddress} and then that address to /sys/bus/pci/drivers_probe, or use driver: vfio-pci`;
    const message = `the kernel gives VFs of ${pf} no driver, so that ${pciAddress} can get no interface`;
    return failed(pciAddress, message, { hint });
  }

  async #checkNoVfs(pciAddress: string): Promise<void> {
    const numVfs = Number((await readOptionalText(join(this.#deviceDir(pciAddress), 'sriov_numvfs'))) ?? 0);
    if (numVfs === 0) return;
    throw new SriovError('function-in-use', `cannot bind the driver of ${pciAddress} again: ${numVfs} VFs are on`, {
      device: pciAddress,
      retriable: true,
      hint: 'end what keeps the network namespace alive that its interface is in, or switch the VFs off',
    });
  }

  async #checkLoaded(pciAddress: string, driver: string): Promise<void> {
    await readdir(join(this.#root, 'bus/pci/drivers', driver)).catch((cause: unknown) => {
      const message = `cannot bind ${pciAddress}: there is no driver ${driver}`;
      throw failed(pciAddress, message, { cause, hint: `modprobe ${driver}` });
    });
  }

  async #unbind(pciAddress: string, current: string | undefined): Promise<void> {
    if (current === undefined) return;
    await this.#write(pciAddress, join(this.#deviceDir(pciAddress), 'driver', 'unbind'), pciAddress);
  }

  async #probe(pciAddress: string): Promise<void> {
    await this.#write(pciAddress, join(this.#root, 'bus/pci/drivers_probe'), pciAddress);
  }

  /**
   * Waits until the right driver is bound, which may become visible a moment after the probe. @returns the last driver that
   * was seen
   */
  async #boundTo(pciAddress: string, isRight: (driver: string | undefined) => boolean): Promise<string | undefined> {
    return await poll(this.#clock, shows, () => this.driverOf(pciAddress), isRight);
  }

  async #write(pciAddress: string, path: string, text: string): Promise<void> {
    const write = () => this.#writeFile(path, text, pciAddress);
    await whileBusy(this.#clock, isBusy, write).catch((cause: unknown) => {
      if (cause instanceof SriovError) throw cause;
      throw failed(pciAddress, `cannot write ${path} for ${pciAddress}`, { cause, path, hint: writeHint(cause) });
    });
  }

  #deviceDir(pciAddress: string): string {
    return join(this.#root, 'bus/pci/devices', pciAddress);
  }
}

function failed(device: string, message: string, details: ErrorDetails): SriovError {
  return new SriovError('binding-failed', message, { device, retriable: true, ...details });
}

/** Returns whether a driver is vfio-pci, or a variant of it for specific devices. */
export function isVfio(driver: string | undefined): boolean {
  return driver !== undefined && /vfio/.test(driver);
}

/**
 * Returns whether a function with this driver cannot have an interface: it has no driver, or a driver that assigns it to user
 * space (vfio-pci, igb_uio, uio_pci_generic) or reserves it (pci-stub, xen-pciback).
 */
export function hasNoInterface(driver: string | undefined): boolean {
  return driver === undefined || /vfio|uio|^pci-stub$|pciback/.test(driver);
}
