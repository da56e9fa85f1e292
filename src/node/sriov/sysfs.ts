import { realpathSync, statSync } from 'node:fs';
import { readdir, writeFile } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { whileBusy } from '../../lib/while-busy.ts';
import { isRepresentor } from '../netlink/index.ts';
import { isVfio, type WriteFile } from './driver-binding.ts';
import { SriovError } from './errors.ts';
import { type NetInterface, type Port, readIsUp, readNetInterfaces, readPort } from './net-interface.ts';
import { isPciAddress, isRootComplex } from './pci-address.ts';
import { type RdmaNetnsMode, readRdmaNetnsMode } from './rdma-mode.ts';
import {
  attempt,
  linkTarget,
  listOptionalDir,
  parseCount,
  readId,
  readInterfaceText,
  readOptionalText,
  readText,
} from './sysfs-files.ts';
import { isBusy, numVfsHint } from './write-hints.ts';

/** Facts that do not change while a function exists. */
interface FixedFacts {
  /** Vendor ID, four hexadecimal digits: `8086`. */
  vendor: string;
  /** Device ID, four hexadecimal digits: `154c`. */
  device: string;
  /** NUMA node; absent on machines with one node, and where the firmware does not report it. */
  numaNode?: number;
  /** Root complex, such as `pci0000:3a`. Several devices can share one. */
  pcieRoot?: string;
}

/** Facts from sysfs about a PCI function. */
export interface PciFunction extends FixedFacts {
  /** PCI address with domain: `0000:3b:02.1`. */
  pciAddress: string;
  /** Kernel driver; absent when none is bound. */
  driver?: string;
  /** Number of the IOMMU group; absent without an IOMMU. */
  iommuGroup?: string;
  /** Other members of the IOMMU group, without bridges: all of them are assigned to user space together. */
  iommuPeers: string[];
  /** Set if a program has the function open through vfio. */
  isOpen?: true;
}

/** Function of a network card that can have VFs. */
export interface Pf extends PciFunction {
  totalVfs: number;
  /** VFs that are enabled, in the order of their numbers. */
  vfs: { pciAddress: string; vfIndex: number }[];
}

export interface Vf extends PciFunction {
  pfAddress: string;
  /** Number of the VF at its PF, from 0. */
  vfIndex: number;
}

/** PCI addresses of network functions, in order. VFs are left out: they are found through their PFs. */
export interface NetworkFunctions {
  /** Functions that can have VFs. */
  pfs: string[];
  /** Functions that are not VFs and cannot have VFs. */
  others: string[];
  /** Errors for functions of unknown kind; absent if all kinds are known. */
  problems?: SriovError[];
}

interface Known {
  /** Identity of the function's directory, which changes when the function is recreated. */
  identity: string;
  driver: string | undefined;
  iommuGroup: string | undefined;
  facts: FixedFacts;
}

type FunctionKind = 'pf' | 'vf' | 'other' | 'bridge' | 'no-network';

/**
 * Reads PCI functions and their virtual functions. Facts that cannot change while a function exists are read only once, since
 * the methods are called again and again. Reading throws SriovError `sysfs-unreadable` (`retriable` if the function no longer
 * exists) or `sysfs-malformed`.
 * Source: kernel Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband.
 */
export class Sysfs {
  readonly #root: string;
  readonly #kinds = new Map<string, FunctionKind>();
  readonly #known = new Map<string, Known>();
  /** Members of IOMMU groups by group number. Cleared when a device appears, vanishes or changes its driver. */
  readonly #groups = new Map<string, string[]>();
  readonly #writeFile: WriteFile;
  readonly #clock: Clock;

  /**
   * @param root mount point of sysfs
   * @param write function for files on whose content the kernel acts
   */
  constructor(root = '/sys', write: WriteFile = (path, text) => writeFile(path, text), clock: Clock = systemClock) {
    this.#root = root;
    this.#writeFile = write;
    this.#clock = clock;
  }

  async networkFunctions(): Promise<NetworkFunctions> {
    const dir = join(this.#root, 'bus/pci/devices');
    const addresses = (await attempt(dir, () => readdir(dir))).filter(isPciAddress).sort();
    this.#forgetOthers(new Set(addresses));
    const problems: SriovError[] = [];
    const kindOf = (address: string) =>
      this.#kindOf(address).catch((error: unknown) => {
        if (!(error instanceof SriovError)) throw error;
        problems.push(error);
        return undefined;
      });
    const kinds = await Promise.all(addresses.map(kindOf));
    return {
      pfs: addresses.filter((_, index) => kinds[index] === 'pf'),
      others: addresses.filter((_, index) => kinds[index] === 'other'),
      ...(problems.length === 0 ? {} : { problems }),
    };
  }

  /** Reads a PF. @param pciAddress address among the `pfs` of {@link networkFunctions} */
  async pf(pciAddress: string): Promise<Pf> {
    const dir = this.#dirOf(pciAddress);
    const totalVfs = parseCount(join(dir, 'sriov_totalvfs'), await readText(join(dir, 'sriov_totalvfs')));
    const entries = await attempt(dir, () => readdir(dir));
    const vfs = entries
      .map((name) => /^virtfn(\d+)$/.exec(name))
      .filter((match) => match !== null)
      .map(async ([name, index]) => {
        const target = await linkTarget(join(dir, name));
        // The link disappears if the VFs are disabled in between.
        return target === undefined ? [] : [{ pciAddress: basename(target), vfIndex: Number(index) }];
      });
    const ordered = (await Promise.all(vfs)).flat().sort((a, b) => a.vfIndex - b.vfIndex);
    return { ...(await this.pciFunction(pciAddress)), totalVfs, vfs: ordered };
  }

  async vf(pf: Pf, { pciAddress, vfIndex }: Pf['vfs'][number]): Promise<Vf> {
    return { ...(await this.pciFunction(pciAddress)), pfAddress: pf.pciAddress, vfIndex };
  }

  async pciFunction(pciAddress: string): Promise<PciFunction> {
    const dir = this.#dirOf(pciAddress);
    const [identity, driverLink] = await Promise.all([readIdentity(dir), linkTarget(join(dir, 'driver'))]);
    const driver = driverLink && basename(driverLink);
    let known = this.#known.get(pciAddress);
    if (known?.identity !== identity || known.driver !== driver) {
      const [facts, group] = await Promise.all([this.#readFacts(dir), linkTarget(join(dir, 'iommu_group'))]);
      known = { identity, driver, facts, iommuGroup: group && basename(group) };
      this.#known.set(pciAddress, known);
      this.#groups.clear();
    }
    const { iommuGroup } = known;
    return {
      pciAddress,
      ...known.facts,
      ...defined({ driver, iommuGroup }),
      iommuPeers: iommuGroup === undefined ? [] : await this.#peers(iommuGroup, pciAddress),
      ...((await this.#isOpen(dir, driver)) && { isOpen: true as const }),
    };
  }

  /** Returns whether a program has a function open through vfio at the moment. */
  async isOpen(pciAddress: string): Promise<boolean> {
    const dir = this.#dirOf(pciAddress);
    const driver = await linkTarget(join(dir, 'driver'));
    return await this.#isOpen(dir, driver && basename(driver));
  }

  /**
   * Returns whether a program has a function open through vfio. vfio enables a function when it is opened, and disables it
   * when it is closed or bound. Other ways do not work: programs may be invisible in `/proc`, and only one program at a time
   * may open the group.
   * Source: Linux drivers/vfio/pci/vfio_pci_core.c, `vfio_pci_core_enable`.
   */
  async #isOpen(dir: string, driver: string | undefined): Promise<boolean> {
    if (!isVfio(driver)) return false;
    const enabled = await readOptionalText(join(dir, 'enable'));
    return enabled !== undefined && enabled.trim() !== '0';
  }

  /** Returns the function's interfaces in the network namespace in which sysfs was mounted. */
  async interfaces(pciAddress: string): Promise<NetInterface[]> {
    return await readNetInterfaces(this.#dirOf(pciAddress));
  }

  /**
   * Returns the names of the function's interfaces in that namespace; `undefined` if it has none in any network namespace:
   * unlike interfaces, their directory is visible in all of them.
   */
  async interfaceNames(pciAddress: string): Promise<string[] | undefined> {
    return await listOptionalDir(join(this.#dirOf(pciAddress), 'net'));
  }

  /** Returns the names of the function's interfaces without representors, which drivers register below their PF. */
  async portNames(pciAddress: string): Promise<string[]> {
    const names = (await this.interfaceNames(pciAddress)) ?? [];
    const ports = names.map((name) => readInterfaceText(join(this.#dirOf(pciAddress), 'net', name, 'phys_port_name')));
    const portNames = await Promise.all(ports);
    return names.filter((_, index) => !isRepresentor(defined({ portName: portNames[index] })));
  }

  /** Returns whether an interface of the function is administratively up; `undefined` if it has disappeared. */
  async isUp(pciAddress: string, interfaceName: string): Promise<boolean | undefined> {
    return await readIsUp(this.#dirOf(pciAddress), interfaceName);
  }

  /** Reads the port of an interface of the function. */
  async port(pciAddress: string, interfaceName: string): Promise<Port> {
    return await readPort(this.#dirOf(pciAddress), interfaceName);
  }

  /** Returns the names of RDMA devices, such as `mlx5_2`, by PCI address of their function. */
  async rdmaDevices(): Promise<Map<string, string[]>> {
    const dir = join(this.#root, 'class/infiniband');
    const devices = new Map<string, string[]>();
    for (const name of (await listOptionalDir(dir)) ?? []) {
      // RDMA devices without hardware, such as rxe, belong to no PCI function.
      const pciAddress = (await linkTarget(join(dir, name)))?.split(sep).findLast(isPciAddress);
      if (pciAddress !== undefined) devices.set(pciAddress, [...(devices.get(pciAddress) ?? []), name]);
    }
    return devices;
  }

  /** Reads the RDMA mode of the node: see {@link readRdmaNetnsMode}. */
  async rdmaNetnsMode(): Promise<RdmaNetnsMode | undefined> {
    return await readRdmaNetnsMode(this.#root);
  }

  /**
   * Enables a number of VFs; 0 disables all. To change the number, it must be set to 0 first.
   * @throws SriovError `sysfs-unwritable`
   */
  async setNumVfs(pf: Pf, numVfs: number): Promise<void> {
    const path = join(this.#dirOf(pf.pciAddress), 'sriov_numvfs');
    try {
      await whileBusy(this.#clock, isBusy, () => this.#writeFile(path, String(numVfs), pf.pciAddress));
    } catch (cause) {
      if (cause instanceof SriovError) throw cause;
      throw new SriovError('sysfs-unwritable', `cannot switch on ${numVfs} VFs of ${pf.pciAddress}`, {
        cause,
        path,
        device: pf.pciAddress,
        retriable: true,
        hint: numVfsHint(cause, pf.totalVfs),
      });
    }
  }

  /**
   * Returns the other members of an IOMMU group, without bridges: they need no vfio driver when a group is assigned to user
   * space.
   */
  async #peers(group: string, pciAddress: string): Promise<string[]> {
    const dir = join(this.#root, 'kernel/iommu_groups', group, 'devices');
    const members = this.#groups.get(group) ?? (await attempt(dir, () => readdir(dir)));
    this.#groups.set(group, members);
    return members.filter((member) => member !== pciAddress && this.#kinds.get(member) !== 'bridge');
  }

  #forgetOthers(addresses: Set<string>): void {
    for (const address of this.#kinds.keys()) {
      if (addresses.has(address)) continue;
      this.#kinds.delete(address);
      this.#known.delete(address);
      this.#groups.clear();
    }
  }

  /**
   * Returns the kind of a function. The kind of an address never changes, even if the function is recreated: it follows from
   * the card.
   */
  async #kindOf(pciAddress: string): Promise<FunctionKind> {
    const known = this.#kinds.get(pciAddress);
    // `other` is not final: between the registration of a VF and that of its link to the PF, the VF looks like another
    // function.
    if (known !== undefined && known !== 'other') return known;
    const kind = await readKind(this.#dirOf(pciAddress));
    if (kind === known) return kind;
    this.#kinds.set(pciAddress, kind);
    this.#groups.clear();
    return kind;
  }

  async #readFacts(dir: string): Promise<FixedFacts> {
    const [vendor, device, numaNode, pcieRoot] = await Promise.all([
      readId(join(dir, 'vendor')),
      readId(join(dir, 'device')),
      readNumaNode(join(dir, 'numa_node')),
      this.#pcieRoot(dir),
    ]);
    return { vendor, device, ...defined({ numaNode, pcieRoot }) };
  }

  /** Returns the root complex of a device: the first part of the path that the device's link points to. */
  async #pcieRoot(dir: string): Promise<string | undefined> {
    const path = await attempt(dir, async () => relative(realpathSync.native(this.#root), realpathSync.native(dir)));
    return path.split(sep).find(isRootComplex);
  }

  #dirOf(pciAddress: string): string {
    return join(this.#root, 'bus/pci/devices', pciAddress);
  }
}

/**
 * Returns the identity of a directory. sysfs never reuses an inode number; other file systems do, but with another birth
 * time. The directory is read synchronously, like the attributes of a function: the kernel has it in memory.
 */
async function readIdentity(dir: string): Promise<string> {
  const { ino, birthtimeNs } = await attempt(dir, () => statSync(dir, { bigint: true }));
  return `${ino} ${birthtimeNs}`;
}

/** Reads the kind of a function from its PCI base class (file `class`): 02 is network controllers, 06 bridges. */
async function readKind(dir: string): Promise<FunctionKind> {
  const [, baseClass] = /^0x([0-9a-f]{2})[0-9a-f]{4}$/.exec(await readText(join(dir, 'class'))) ?? [];
  if (baseClass === '06') return 'bridge';
  if (baseClass !== '02') return 'no-network';
  if ((await linkTarget(join(dir, 'physfn'))) !== undefined) return 'vf';
  return (await readOptionalText(join(dir, 'sriov_totalvfs'))) === undefined ? 'other' : 'pf';
}

/**
 * Reads the NUMA node; `undefined` if it is unknown: kernels without NUMA have no such file, and -1 means that the firmware
 * does not report it.
 */
async function readNumaNode(path: string): Promise<number | undefined> {
  const text = await readOptionalText(path);
  if (text === undefined || text === '-1') return undefined;
  return parseCount(path, text);
}
