import {
  type Card,
  DeviceNodes,
  DriverBinding,
  isVfio,
  type PciFunction,
  type Pf,
  SriovError,
  Sysfs,
} from '../../src/node/sriov/index.ts';
import type { Hardware, SimVf } from './hardware.ts';
import type { SimLink } from './links.ts';
import { numaNodeOf } from './numa.ts';
import type { Process, Simulator } from './simulator.ts';

/** sysfs of the card, for one process: each step of the kernel is a call. */
class SimBinding extends DriverBinding {
  readonly #hardware: Hardware;
  readonly #process: Process;
  readonly #simulator: Simulator;

  constructor(hardware: Hardware, process: Process, simulator: Simulator) {
    super('/nonexistent');
    this.#hardware = hardware;
    this.#process = process;
    this.#simulator = simulator;
  }

  override isPresent(pciAddress: string): Promise<boolean> {
    return this.#call('isPresent', 0.1, pciAddress, () => true);
  }

  override driverOf(pciAddress: string): Promise<string | undefined> {
    return this.#call('driverOf', 0.1, pciAddress, (vf) => vf.driver);
  }

  override hasInterface(pciAddress: string): Promise<boolean> {
    return this.#call('interfaceOf', 0.1, pciAddress, (vf) => vf.link !== undefined);
  }

  override overrideOf(pciAddress: string): Promise<string | undefined> {
    return this.#call('overrideOf', 0.1, pciAddress, (vf) => vf.override);
  }

  override setOverride(pciAddress: string, driver: string | undefined): Promise<void> {
    return this.#call(`driver_override ${driver ?? ''}`, 0.1, pciAddress, (vf) => {
      vf.override = driver;
    });
  }

  override async bind(pciAddress: string, driver: string | undefined): Promise<void> {
    const current = await this.driverOf(pciAddress);
    if (current === driver) return;
    await this.setOverride(pciAddress, driver);
    await this.#unbind(pciAddress, current);
    if (driver === undefined) return;
    await this.#probe(pciAddress);
    await this.setOverride(pciAddress, undefined);
    const bound = await this.driverOf(pciAddress);
    if (bound !== driver) throw failed(pciAddress, `${pciAddress} has ${bound} instead of ${driver}`);
  }

  override async bindDefault(pciAddress: string): Promise<void> {
    const current = await this.driverOf(pciAddress);
    if (current !== undefined && !isVfio(current)) return;
    await this.setOverride(pciAddress, undefined);
    await this.#unbind(pciAddress, current);
    await this.#probe(pciAddress);
  }

  override async rebind(pciAddress: string): Promise<void> {
    const driver = await this.driverOf(pciAddress);
    if (driver === undefined) return await this.bindDefault(pciAddress);
    const override = await this.overrideOf(pciAddress);
    await this.setOverride(pciAddress, driver);
    await this.#unbind(pciAddress, driver);
    await this.bind(pciAddress, driver);
    if (override !== undefined) await this.setOverride(pciAddress, override);
  }

  override async reset(pciAddress: string): Promise<boolean> {
    return await this.#call('reset', 5, pciAddress, () => true);
  }

  override async iommuGroup(pciAddress: string) {
    return await this.#call('iommu_group', 0.1, pciAddress, (vf) => ({
      group: `${40 + vf.vfIndex}`,
      others: [],
      foreign: [],
    }));
  }

  async #unbind(pciAddress: string, current: string | undefined): Promise<void> {
    if (current === undefined) return;
    await this.#call('unbind', 5, pciAddress, (vf) => this.#hardware.unbind(vf, this.#process.name));
  }

  async #probe(pciAddress: string): Promise<void> {
    await this.#call('drivers_probe', 5, pciAddress, (vf) => {
      if (vf.driver === undefined) this.#hardware.bind(vf, vf.override ?? vf.ownDriver);
    });
  }

  #call<T>(what: string, usualMs: number, pciAddress: string, effect: (vf: SimVf) => T): Promise<T> {
    const { tape } = this.#simulator;
    if (!/Of$|isPresent/.test(what)) this.#simulator.trace(this.#process.name, `${what} of ${pciAddress}`);
    return this.#process.call(what, tape.answerDelay(usualMs, 100 * usualMs), () => {
      const vf = this.#hardware.find(pciAddress);
      if (this.#hardware.pfOf(pciAddress) !== undefined) return effect({ driver: 'ice' } as SimVf);
      if (vf === undefined) throw failed(pciAddress, `${pciAddress} is not there`);
      return effect(vf);
    });
  }
}

function failed(device: string, message: string): SriovError {
  return new SriovError('binding-failed', message, { device, retriable: true });
}

/** The character devices by which a program has a VF. */
export function vfioNodes(vfIndex: number): string[] {
  return ['/dev/vfio/vfio', `/dev/vfio/${40 + vfIndex}`];
}

/** The character devices of vfio. */
class SimDeviceNodes extends DeviceNodes {
  readonly #hardware: Hardware;

  constructor(hardware: Hardware) {
    super('/nonexistent');
    this.#hardware = hardware;
  }

  override async vfio(pciAddress: string) {
    const { vfIndex = 0 } = this.#hardware.find(pciAddress) ?? {};
    const iommuGroup = `${40 + vfIndex}`;
    return { device: `/dev/vfio/${iommuGroup}`, iommuGroup, nodes: vfioNodes(vfIndex) };
  }

  override async rdmaDevice() {
    return undefined;
  }
}

/** What sysfs shows of the card. Reading takes no time: the kernel has it in memory. */
class SimSysfs extends Sysfs {
  readonly #hardware: Hardware;
  readonly #process: Process;
  readonly #fails: () => boolean;

  constructor(hardware: Hardware, process: Process, fails: () => boolean) {
    super('/nonexistent');
    this.#hardware = hardware;
    this.#process = process;
    this.#fails = fails;
  }

  override async networkFunctions() {
    this.#read('devices');
    return { pfs: this.#hardware.pfs.map(({ pciAddress }) => pciAddress), others: [] };
  }

  override async rdmaDevices() {
    return new Map<string, string[]>();
  }

  override async rdmaNetnsMode() {
    return undefined;
  }

  override async pf(pciAddress: string): Promise<Pf> {
    this.#read(pciAddress);
    const own = this.#hardware.vfs.filter(({ pf }) => pf.pciAddress === pciAddress);
    const vfs = own.map(({ vfIndex, pciAddress: address }) => ({ vfIndex, pciAddress: address }));
    return { ...(await this.pciFunction(pciAddress)), totalVfs: 8, vfs };
  }

  override async setNumVfs(): Promise<void> {
    this.#process.point('sriov_numvfs');
    this.#hardware.switchOn();
  }

  override async pciFunction(pciAddress: string): Promise<PciFunction> {
    this.#read(pciAddress);
    const facts = { pciAddress, vendor: '8086', pcieRoot: 'pci0000:00', iommuPeers: [] };
    if (this.#hardware.pfOf(pciAddress) !== undefined) {
      return { ...facts, device: '1592', driver: 'ice', iommuGroup: '39' };
    }
    const vf = this.#hardware.find(pciAddress);
    if (vf === undefined) throw new SriovError('sysfs-unreadable', `${pciAddress} is not there`, { retriable: true });
    const iommuGroup = `${40 + vf.vfIndex}`;
    return {
      ...facts,
      device: '1889',
      numaNode: numaNodeOf(vf),
      iommuGroup,
      ...(vf.driver === undefined ? {} : { driver: vf.driver }),
    };
  }

  override async interfaces(pciAddress: string) {
    this.#read(pciAddress);
    return (
      this.#linksOf(pciAddress)?.map(({ name, hardwareAddress, mtuBytes }) => ({ name, hardwareAddress, mtuBytes })) ??
      []
    );
  }

  override async interfaceNames(pciAddress: string): Promise<string[] | undefined> {
    this.#read(pciAddress);
    return this.#linksOf(pciAddress)?.map(({ name }) => name);
  }

  override async port() {
    return { linkType: 'ethernet' as const, linkSpeedMbps: 100_000 };
  }

  #read(pciAddress: string): void {
    if (this.#fails()) throw new SriovError('sysfs-unreadable', `${pciAddress} cannot be read`, { retriable: true });
  }

  /** Those on the host; `undefined` if there is none anywhere. */
  #linksOf(pciAddress: string): SimLink[] | undefined {
    const { link } = this.#hardware.pfOf(pciAddress) ?? this.#hardware.find(pciAddress) ?? {};
    return link && [link].filter(({ namespace }) => namespace.isHost);
  }
}

/** @param fails whether the current read of sysfs fails */
export function openSimCard(hardware: Hardware, process: Process, simulator: Simulator, fails: () => boolean): Card {
  return {
    sysfs: new SimSysfs(hardware, process, fails),
    binding: new SimBinding(hardware, process, simulator),
    nodes: new SimDeviceNodes(hardware),
    writes: { hung: [], [Symbol.dispose]: () => undefined },
  };
}
