import { readdir, readFile, readlink, realpath, writeFile } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import { errnoCode } from '../errors.ts';
import { SriovError } from './errors.ts';
import { isPciAddress } from './pci-address.ts';

/** What sysfs tells about a PCI function. */
export interface PciFunction {
  /** With domain: `0000:3b:02.1`. */
  pciAddress: string;
  /** Four hexadecimal digits: `8086`. */
  vendor: string;
  /** Four hexadecimal digits: `154c`. */
  device: string;
  /** Kernel driver; absent when none is bound. */
  driver?: string;
  /** Its network interface, as far as it is in the network namespace that sysfs was mounted in. */
  interfaceName?: string;
  /** Of that interface: lower case with colons. */
  hardwareAddress?: string;
  /** Of that interface. */
  mtuBytes?: number;
  /** Absent on machines with one node, and where the firmware does not tell. */
  numaNode?: number;
  /** `pci0000:3a`: devices with the same one share a root complex. */
  pcieRoot?: string;
  iommuGroup?: string;
}

/** A network card's function that can have VFs. */
export interface Pf extends PciFunction {
  totalVfs: number;
  /** Those that are switched on, in the order of their addresses. */
  vfs: { pciAddress: string; vfIndex: number }[];
}

export interface Vf extends PciFunction {
  pfAddress: string;
  pfName?: string;
  /** Its number at the PF, from 0. */
  vfIndex: number;
}

/** PCI base class of network controllers, as in the file `class`. */
const networkClass = /^0x02[0-9a-f]{4}$/;

/**
 * Reads PCI functions and their virtual functions.
 * Source: kernel Documentation/ABI/testing/sysfs-bus-pci.
 */
export class Sysfs {
  readonly #root: string;

  /** @param root where sysfs is mounted */
  constructor(root = '/sys') {
    this.#root = root;
  }

  /**
   * PCI addresses of the network cards that can do SR-IOV, in order.
   * @throws SriovError `sysfs-unreadable`
   */
  async pfAddresses(): Promise<string[]> {
    const dir = join(this.#root, 'bus/pci/devices');
    const names = await attempt(dir, () => readdir(dir));
    const found = await Promise.all(names.filter(isPciAddress).map((name) => this.#isPf(name)));
    return names
      .filter(isPciAddress)
      .filter((_, index) => found[index])
      .sort();
  }

  /**
   * @param pciAddress one of {@link pfAddresses}
   * @throws SriovError `sysfs-unreadable`, `sysfs-malformed`
   */
  async pf(pciAddress: string): Promise<Pf> {
    const dir = this.#dirOf(pciAddress);
    const totalVfs = parseNumber(join(dir, 'sriov_totalvfs'), await readText(join(dir, 'sriov_totalvfs')));
    const entries = await attempt(dir, () => readdir(dir));
    const vfs = entries
      .map((name) => /^virtfn(\d+)$/.exec(name))
      .filter((match) => match !== null)
      .map(async ([name, index]) => {
        const target = await linkTarget(join(dir, name));
        // The link goes away when VFs are switched off meanwhile.
        return target === undefined ? [] : [{ pciAddress: basename(target), vfIndex: Number(index) }];
      });
    const ordered = (await Promise.all(vfs)).flat().sort((a, b) => a.vfIndex - b.vfIndex);
    return { ...(await this.#pciFunction(pciAddress)), totalVfs, vfs: ordered };
  }

  /**
   * A VF of a PF.
   * @throws SriovError `sysfs-unreadable` (`retriable` if it is gone), `sysfs-malformed`
   */
  async vf(pf: Pf, { pciAddress, vfIndex }: Pf['vfs'][number]): Promise<Vf> {
    const pfName = pf.interfaceName === undefined ? {} : { pfName: pf.interfaceName };
    return { ...(await this.#pciFunction(pciAddress)), pfAddress: pf.pciAddress, ...pfName, vfIndex };
  }

  /**
   * Switches VFs on or, with 0, off. The kernel does not go from one number to another without 0 in between.
   * @throws SriovError `sysfs-unwritable`
   */
  async setNumVfs(pf: Pf, numVfs: number): Promise<void> {
    const path = join(this.#dirOf(pf.pciAddress), 'sriov_numvfs');
    try {
      await writeFile(path, String(numVfs));
    } catch (cause) {
      throw new SriovError('sysfs-unwritable', `cannot switch on ${numVfs} VFs of ${pf.pciAddress}`, {
        cause,
        path,
        device: pf.pciAddress,
        hint: `the card can have ${pf.totalVfs}; sysfs must be mounted writable`,
      });
    }
  }

  /** All VFs of a PF. */
  async vfs(pf: Pf): Promise<Vf[]> {
    return await Promise.all(pf.vfs.map((entry) => this.vf(pf, entry)));
  }

  async #isPf(pciAddress: string): Promise<boolean> {
    const dir = this.#dirOf(pciAddress);
    if ((await readOptionalText(join(dir, 'sriov_totalvfs'))) === undefined) return false;
    return networkClass.test((await readOptionalText(join(dir, 'class'))) ?? '');
  }

  async #pciFunction(pciAddress: string): Promise<PciFunction> {
    const dir = this.#dirOf(pciAddress);
    const [vendor, device, driver, iommuGroup, numaNode, pcieRoot, netInterface] = await Promise.all([
      readId(join(dir, 'vendor')),
      readId(join(dir, 'device')),
      linkTarget(join(dir, 'driver')),
      linkTarget(join(dir, 'iommu_group')),
      readNumaNode(join(dir, 'numa_node')),
      this.#pcieRoot(dir),
      readInterface(join(dir, 'net')),
    ]);
    return {
      pciAddress,
      vendor,
      device,
      ...(driver === undefined ? {} : { driver: basename(driver) }),
      ...netInterface,
      ...(numaNode === undefined ? {} : { numaNode }),
      ...(pcieRoot === undefined ? {} : { pcieRoot }),
      ...(iommuGroup === undefined ? {} : { iommuGroup: basename(iommuGroup) }),
    };
  }

  /** The devices are links into the tree of buses; the root complex is the first part of that path. */
  async #pcieRoot(dir: string): Promise<string | undefined> {
    const path = await attempt(dir, async () => relative(await realpath(this.#root), await realpath(dir)));
    return path.split(sep).find((part) => /^pci[0-9a-f]{4}:[0-9a-f]{2}$/.test(part));
  }

  #dirOf(pciAddress: string): string {
    return join(this.#root, 'bus/pci/devices', pciAddress);
  }
}

async function readId(path: string): Promise<string> {
  const text = await readText(path);
  const [, digits] = /^0x([0-9a-f]{4})$/.exec(text) ?? [];
  if (digits === undefined) throw malformed(path, text, 'an id such as 0x8086');
  return digits;
}

/** Kernels without NUMA have no such file; -1 means that the firmware does not tell. */
async function readNumaNode(path: string): Promise<number | undefined> {
  const text = await readOptionalText(path);
  if (text === undefined || text === '-1') return undefined;
  return parseNumber(path, text);
}

type NetInterface = Pick<PciFunction, 'interfaceName' | 'hardwareAddress' | 'mtuBytes'>;

/** It can leave between two reads; then it is as if it had left before. */
async function readInterface(dir: string): Promise<NetInterface> {
  const interfaceName = await readInterfaceName(dir);
  if (interfaceName === undefined) return {};
  const [hardwareAddress, mtu] = await Promise.all([
    readOptionalText(join(dir, interfaceName, 'address')),
    readOptionalText(join(dir, interfaceName, 'mtu')),
  ]);
  if (hardwareAddress === undefined || mtu === undefined) return {};
  return { interfaceName, hardwareAddress, mtuBytes: parseNumber(join(dir, interfaceName, 'mtu'), mtu) };
}

/** The interface itself, not the representors of its VFs, which switchdev drivers list beside it. */
async function readInterfaceName(dir: string): Promise<string | undefined> {
  const names = (await unlessMissing(dir, () => readdir(dir)))?.sort() ?? [];
  if (names.length < 2) return names[0];
  const ports = await Promise.all(names.map((name) => readPortName(join(dir, name, 'phys_port_name'))));
  return names.find((_, index) => !/pf\d+(vf|sf)\d+$/.test(ports[index]!));
}

/** Drivers that have no port names answer the read with EOPNOTSUPP. */
async function readPortName(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (['ENOENT', 'EOPNOTSUPP', 'ENOTSUP'].includes(errnoCode(error) ?? '')) return '';
    throw unreadable(path, error);
  }
}

async function readText(path: string): Promise<string> {
  return (await attempt(path, () => readFile(path, 'utf8'))).trim();
}

async function readOptionalText(path: string): Promise<string | undefined> {
  return (await unlessMissing(path, () => readFile(path, 'utf8')))?.trim();
}

async function linkTarget(path: string): Promise<string | undefined> {
  return await unlessMissing(path, () => readlink(path));
}

async function unlessMissing<T>(path: string, read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return undefined;
    throw unreadable(path, error);
  }
}

async function attempt<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    throw unreadable(path, error);
  }
}

function parseNumber(path: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw malformed(path, text, 'a number');
  return Number(text);
}

function unreadable(path: string, cause: unknown): SriovError {
  const gone = ['ENOENT', 'ENODEV'].includes(errnoCode(cause) ?? '');
  return new SriovError('sysfs-unreadable', `cannot read ${path}`, {
    cause,
    path,
    retriable: gone,
    hint: gone ? 'the device was removed, or sysfs is not mounted there' : 'mount /sys and run as root',
  });
}

function malformed(path: string, text: string, expected: string): SriovError {
  return new SriovError('sysfs-malformed', `${path} holds ${JSON.stringify(text)} instead of ${expected}`, { path });
}
