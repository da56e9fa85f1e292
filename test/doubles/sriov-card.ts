import { existsSync, mkdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import {
  type AdminSettings,
  type EthtoolState,
  type Link,
  type LinkEthtool,
  NetlinkError,
  parseHardwareAddress,
  type VfChange,
  type VfInfo,
} from '../../src/node/netlink/index.ts';
import type { VfHardwareOptions } from '../../src/node/sriov/vf-hardware.ts';
import { type CardModel, Hardware, type SimVf } from '../simulation/hardware.ts';
import { Kernel } from '../simulation/kernel.ts';
import type { Namespace, SimLink } from '../simulation/links.ts';
import { Simulator } from '../simulation/simulator.ts';
import { Tape } from '../simulation/tape.ts';
import { tempDir } from './temp-dir.ts';

export interface SriovCardOptions {
  vfs?: number;
  /** The driver that the kernel binds by default. */
  defaultDriver?: string;
  /** Drivers that are loaded. */
  drivers?: string[];
  /** `own`: each VF has an IOMMU group; `shared`: they share one with a sound card; `none`: there is no IOMMU. */
  iommu?: 'own' | 'shared' | 'none';
  /** Properties that the PF's driver cannot set. */
  unsupported?: (keyof VfChange)[];
  /** The PF's initial settings for each VF; absent values are not reported by the driver. */
  info?: AdminSettings;
  /** Whether the kernel has iommufd. */
  iommufd?: boolean;
  /** Whether the PF reports the address that a VF has chosen itself as administrative, like igb. */
  tellsOwnAddresses?: boolean;
  /**
   * How often the PF refuses to remove an administrative address: always like octeontx2 and qede, or once like ice while it
   * resets a VF.
   */
  refusesNoAddress?: 'never' | 'once' | 'always';
  /** Whether the kernel probes VFs for drivers of its choice: `sriov_drivers_autoprobe`. */
  probesVfs?: boolean;
  /** The MTU of the PF, and the largest one that the driver of the VFs takes. */
  mtu?: { pf: number; vf: number };
  /** Whether its functions can be reset by sysfs. */
  hasReset?: boolean;
  /** Whether its interfaces are IPoIB: addresses of 20 octets, which change at every bind and cannot be set. */
  isInfiniBand?: boolean;
}

export const pfAddress = '0000:01:00.0';
export const soundCard = '0000:02:00.0';
export const vfAddress = (index: number) => `0000:01:10.${index}`;

/**
 * A card with SR-IOV, as far as `src/node/sriov` uses one: the card and the kernel of the simulation behind a sysfs tree in
 * a temporary directory, and behind rtnetlink of the PF and the VFs, with faults. It is as difficult as real ones: a VF
 * without an administrative address gets another one at every bind, its interface another name, and the PF refuses what its
 * driver cannot do. The kernel is older than 6.2: it does not rename an interface that is up.
 */
export class SriovCard implements Disposable {
  readonly #dir = tempDir();
  readonly #options: Required<SriovCardOptions>;
  readonly #kernel: Kernel;
  readonly #hardware: Hardware;
  /** Where interfaces are that are not on the host. */
  readonly #elsewhere: Namespace;
  readonly #ethtool = new WeakMap<SimLink, EthtoolState>();
  /** Every change, in order: `bind 0000:01:10.0 vfio-pci`, `setVf 0 trust`. */
  readonly log: string[] = [];
  /** Drivers whose probe fails. */
  readonly failingDrivers = new Set<string>();
  /** How often binding a driver makes no interface. */
  readonly silentProbes = new Map<string, number>();
  /** What the next writes into sysfs fail with. */
  readonly refusals: string[] = [];
  /** VFs that the PF does not report, as while they are being reset. */
  readonly leftOut = new Set<number>();
  /** What the request for the PF's VFs fails with. */
  listError: NetlinkError | undefined;
  /** Properties that the PF accepts, without effect. */
  readonly ignored = new Set<keyof VfChange>();

  constructor(options: SriovCardOptions = {}) {
    this.#options = {
      vfs: 2,
      defaultDriver: 'igbvf',
      drivers: ['igbvf', 'vfio-pci', 'snd'],
      iommu: 'own',
      unsupported: [],
      info: { spoofCheck: true, trust: false, linkState: 'auto', minTxRateMbps: 0, maxTxRateMbps: 0 },
      iommufd: false,
      tellsOwnAddresses: false,
      probesVfs: true,
      refusesNoAddress: 'never',
      isInfiniBand: false,
      hasReset: true,
      mtu: { pf: 9000, vf: 9710 },
      ...options,
    };
    const { vfs, drivers } = this.#options;
    const simulator = new Simulator(Tape.of([]));
    const quiet = { udevAddsAltNames: false, udevNameOf: () => undefined, hasIpv6: false };
    this.#kernel = new Kernel({ simulator, renamesLinksThatAreUp: false, ...quiet });
    this.#elsewhere = this.#kernel.createNamespace('pod', this);
    this.#kernel.host.nextIndex = 5;
    this.#hardware = new Hardware({ kernel: this.#kernel, simulator, count: vfs, pfs: 1, model: this.#model() });
    for (const driver of drivers) mkdirSync(this.path('bus/pci/drivers', driver), { recursive: true });
    this.writeText('class/misc/vfio/uevent', 'MAJOR=10\nMINOR=196\nDEVNAME=vfio/vfio\n');
    this.#addFunction(soundCard, '0x040300');
    this.#show(soundCard, 'snd');
    const pfDir = join('bus/pci/devices', pfAddress);
    if (!this.#options.probesVfs) this.writeText(join(pfDir, 'sriov_drivers_autoprobe'), '0\n');
    for (const { pciAddress, driver = '' } of this.#hardware.vfs) {
      this.#addFunction(pciAddress, '0x020000');
      if (!this.#options.probesVfs) symlinkSync(this.path(pfDir), this.path('bus/pci/devices', pciAddress, 'physfn'));
      this.#show(pciAddress, driver);
    }
  }

  /** As by writing 0 to `sriov_numvfs`: the VFs are removed, and the PF has none. */
  switchOff(): void {
    for (const vf of this.#hardware.vfs.splice(0)) {
      this.#hardware.unbind(vf);
      rmSync(this.path('bus/pci/devices', vf.pciAddress), { recursive: true });
    }
  }

  /** Moves a VF's link into another network namespace. */
  moveAway(vfIndex: number): void {
    this.#move(vfIndex, this.#elsewhere);
  }

  /** The kernel returns the link, as at the end of that namespace. */
  comeBack(vfIndex: number): void {
    this.#move(vfIndex, this.#kernel.host);
  }

  get root(): string {
    return this.#dir.path;
  }

  path(...parts: string[]): string {
    return join(this.root, ...parts);
  }

  writeText(path: string, text: string): void {
    mkdirSync(dirname(this.path(path)), { recursive: true });
    writeFileSync(this.path(path), text);
  }

  address(vfIndex: number) {
    return { pciAddress: vfAddress(vfIndex), pfAddress, vfIndex };
  }

  driverOf(pciAddress: string): string | undefined {
    const link = this.path('bus/pci/devices', pciAddress, 'driver');
    return existsSync(link) ? basename(readlinkSync(link)) : undefined;
  }

  overrideOf(pciAddress: string): string {
    return readFileSync(this.path('bus/pci/devices', pciAddress, 'driver_override'), 'utf8').trim();
  }

  info(vfIndex: number): VfInfo | undefined {
    const vf = this.#hardware.vfs[vfIndex];
    return vf && this.#hardware.info(vf);
  }

  link(vfIndex: number): SimLink | undefined {
    return this.#hardware.vfs[vfIndex]?.link;
  }

  /** The full state of a VF on the host. */
  state(vfIndex: number) {
    const link = this.link(vfIndex);
    const pciAddress = vfAddress(vfIndex);
    const { index: _index, ...view }: Partial<Link> = link?.view() ?? {};
    return structuredClone({
      driver: this.driverOf(pciAddress),
      override: this.overrideOf(pciAddress),
      info: { ...this.info(vfIndex) },
      link: view,
      qdiscs: link?.qdiscs,
      ethtool: link && this.#settings(link),
    });
  }

  /** The kernel's reaction to a write: `write` of DriverBinding. */
  readonly write = async (path: string, text: string): Promise<void> => {
    const code = this.refusals.shift();
    if (code !== undefined) throw Object.assign(new Error(`${code}: ${path}`), { code });
    const file = relative(this.root, path);
    const value = text.trim();
    if (file === 'bus/pci/drivers_probe') this.#probe(value);
    else if (file.endsWith('/driver/unbind')) this.#unbind(value);
    else if (file.endsWith('/reset')) this.log.push(`reset ${basename(dirname(path))}`);
    else if (file.endsWith('/driver_override')) writeFileSync(path, `${value || '(null)'}\n`);
    else throw Object.assign(new Error(`ENOENT: ${file}`), { code: 'ENOENT' });
  };

  /** rtnetlink of the namespace of the card. */
  readonly host: VfHardwareOptions['host'] = {
    links: async () => this.#kernel.host.links.map((link) => link.view()),
    vfInfos: async (pf) => {
      if (this.listError !== undefined) throw this.listError;
      return this.#hardware.vfInfos(pf).filter(({ vfIndex }) => !this.leftOut.has(vfIndex));
    },
    setVf: async (pf, vfIndex, change) => this.#setVf(pf, vfIndex, change),
    link: async (by) => {
      const { host } = this.#kernel;
      return ('index' in by ? host.byIndex(by.index) : host.byName(by.name))?.view();
    },
    setLink: async (index, { netns: _netns, ...change }) => {
      if (change.hardwareAddress !== undefined) parseHardwareAddress(change.hardwareAddress);
      this.#kernel.change(this.#kernel.host, index, change, undefined, 'driver');
    },
    addAltName: async (index, name) => this.#kernel.addAltName(this.#kernel.host, index, name),
    removeAltNames: async (index, keep = []) => this.#kernel.removeAltNames(this.#kernel.host, index, keep),
    qdisc: async (index, place) => this.#linkAt(index).qdiscs[place],
    addQdisc: async (index, place, kind) => this.#kernel.setQdisc(this.#kernel.host, index, place, kind),
    removeQdisc: async (index, place) => this.#kernel.setQdisc(this.#kernel.host, index, place, undefined),
    addresses: async () => [],
    addAddress: async () => undefined,
    removeAddress: async () => undefined,
    findRoutes: async (_index, wanted) => ({ found: wanted.map(() => undefined), isCut: false }),
    entries: async () => [],
    addEntry: async () => undefined,
  };

  /** As by ethtool in a pod. */
  changeSettings(vfIndex: number, change: EthtoolState): void {
    const link = this.link(vfIndex);
    if (link !== undefined) this.#ethtool.set(link, structuredClone(change));
  }

  /** The settings that the VFs' driver supports in ethtool. */
  readonly ethtool: LinkEthtool = {
    read: async (index) => structuredClone(this.#settings(this.#linkAt(index))),
    set: async (index, group, values) => {
      Object.assign(this.#settings(this.#linkAt(index))[group] ?? {}, values);
    },
  };

  [Symbol.dispose](): void {
    this.#dir[Symbol.dispose]();
  }

  #addFunction(pciAddress: string, classCode: string): void {
    const dir = join('bus/pci/devices', pciAddress);
    this.writeText(join(dir, 'class'), `${classCode}\n`);
    this.writeText(join(dir, 'driver_override'), '(null)\n');
    if (this.#options.hasReset) this.writeText(join(dir, 'reset'), '');
    const { iommu } = this.#options;
    if (iommu !== 'none')
      this.#addToGroup(pciAddress, iommu === 'shared' ? '7' : String(40 + this.#groupOf(pciAddress)));
  }

  #addToGroup(pciAddress: string, group: string, name = 'DMA'): void {
    const groupDir = join('kernel/iommu_groups', group);
    this.writeText(join(groupDir, 'name'), `${name}\n`);
    this.writeText(join(groupDir, 'devices', pciAddress), '');
    symlinkSync(this.path(groupDir), this.path('bus/pci/devices', pciAddress, 'iommu_group'));
  }

  #groupOf(pciAddress: string): number {
    return pciAddress === soundCard ? 9 : Number(pciAddress.at(-1));
  }

  #probe(pciAddress: string): void {
    if (this.driverOf(pciAddress) !== undefined) return;
    const override = this.overrideOf(pciAddress);
    // As pci_device_can_probe of the kernel.
    if (!this.#options.probesVfs && override === '(null)') return;
    const driver = override === '(null)' ? this.#options.defaultDriver : override;
    if (this.#options.drivers.includes(driver) && !this.failingDrivers.has(driver)) this.#bind(pciAddress, driver);
  }

  #bind(pciAddress: string, driver: string): void {
    this.log.push(`bind ${pciAddress} ${driver}`);
    const vf = this.#hardware.find(pciAddress);
    if (vf !== undefined) {
      this.#hardware.bind(vf, driver);
      const silent = this.silentProbes.get(driver) ?? 0;
      this.silentProbes.set(driver, Math.max(0, silent - 1));
      if (silent > 0) this.#withdraw(vf);
    }
    this.#show(pciAddress, driver);
  }

  /** What a driver shows in sysfs. */
  #show(pciAddress: string, driver: string): void {
    symlinkSync(this.path('bus/pci/drivers', driver), this.path('bus/pci/devices', pciAddress, 'driver'));
    if (driver.includes('vfio')) this.#addVfioNodes(pciAddress);
    if (this.#hardware.find(pciAddress)?.link === undefined) return;
    mkdirSync(this.path('bus/pci/devices', pciAddress, 'net'));
  }

  #withdraw(vf: SimVf): void {
    if (vf.link !== undefined) this.#kernel.removeLink(vf.link);
    vf.link = undefined;
  }

  #unbind(pciAddress: string): void {
    this.log.push(`unbind ${pciAddress}`);
    rmSync(this.path('bus/pci/devices', pciAddress, 'driver'));
    rmSync(this.path('bus/pci/devices', pciAddress, 'net'), { recursive: true, force: true });
    const vf = this.#hardware.find(pciAddress);
    if (vf !== undefined) this.#hardware.unbind(vf);
  }

  /** Without an IOMMU vfio creates a group whose name shows that. */
  #addVfioNodes(pciAddress: string): void {
    const group = String(40 + this.#groupOf(pciAddress));
    const { iommu, iommufd } = this.#options;
    if (iommu === 'none') this.#addToGroup(pciAddress, group, 'vfio-noiommu');
    const node = iommu === 'none' ? `noiommu-${group}` : iommu === 'shared' ? '7' : group;
    this.writeText(`class/vfio/${node}/uevent`, `MAJOR=240\nMINOR=0\nDEVNAME=vfio/${node}\n`);
    const device = `vfio${this.#groupOf(pciAddress)}`;
    const name = iommufd ? `MAJOR=241\nMINOR=0\nDEVNAME=vfio/devices/${device}\n` : '';
    this.writeText(`bus/pci/devices/${pciAddress}/vfio-dev/${device}/uevent`, name);
    if (iommufd) this.writeText('class/misc/iommu/uevent', 'MAJOR=10\nMINOR=124\nDEVNAME=iommu\n');
  }

  #model(): CardModel {
    const { info, defaultDriver: driver, tellsOwnAddresses, isInfiniBand, mtu } = this.#options;
    const addressOf = (linkIndex: number) => {
      const last = linkIndex.toString(16).padStart(2, '0');
      const guid = 'fe:80:00:00:00:00:00:00:00:11:22:33:44:55:66:77';
      return isInfiniBand ? `00:00:10:${last}:${guid}` : `02:00:00:00:00:${last}`;
    };
    return {
      pf: () => ({ name: 'pf0', hardwareAddress: addressOf(10), mtuBytes: mtu.pf, parentDevice: pfAddress }),
      vfAddress,
      driver,
      link: (_vfIndex, linkIndex) => ({
        name: `eth${linkIndex}`,
        hardwareAddress: addressOf(linkIndex),
        mtuLimits: { minMtuBytes: 68, maxMtuBytes: mtu.vf },
      }),
      settings: () => ({ hardwareAddress: undefined, vlan: undefined, ...info }),
      tellsOwnAddresses,
    };
  }

  #move(vfIndex: number, target: Namespace): void {
    const link = this.link(vfIndex);
    if (link !== undefined) this.#kernel.change(link.namespace, link.index, {}, target, 'pod');
  }

  #settings(link: SimLink): EthtoolState {
    const known = this.#ethtool.get(link) ?? { rings: { rx: 256, tx: 256 }, features: { 'rx-checksum': true } };
    this.#ethtool.set(link, known);
    return known;
  }

  #linkAt(index: number): SimLink {
    const link = this.#kernel.host.byIndex(index);
    if (link === undefined) throw refusal('ENODEV');
    return link;
  }

  #setVf(pf: number, vfIndex: number, change: VfChange): void {
    // Cards are busy with a VF while they reset it.
    if (this.leftOut.has(vfIndex)) throw refusal('EBUSY');
    for (const property of Object.keys(change) as (keyof VfChange)[]) {
      if (this.#options.unsupported.includes(property)) throw refusal('EOPNOTSUPP');
      this.log.push(`setVf ${vfIndex} ${property}`);
    }
    const isRemoval = change.hardwareAddress === '00:00:00:00:00:00';
    if (isRemoval && this.#refusesNoAddress()) throw refusal('EINVAL');
    if (Object.keys(change).every((property) => this.ignored.has(property as keyof VfChange))) return;
    this.#hardware.setVf(pf, vfIndex, change);
  }

  #refusesNoAddress(): boolean {
    const { refusesNoAddress } = this.#options;
    if (refusesNoAddress === 'once') this.#options.refusesNoAddress = 'never';
    return refusesNoAddress !== 'never';
  }
}

function refusal(errno: string): NetlinkError {
  return new NetlinkError('netlink-refused', `cannot do that (${errno})`, { errno, retriable: errno === 'EBUSY' });
}
