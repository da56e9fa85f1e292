import { existsSync, mkdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import {
  type EthtoolState,
  type Link,
  type LinkChange,
  type LinkEthtool,
  type LinkFlag,
  NetlinkError,
  parseHardwareAddress,
  type QdiscPlace,
  type VfChange,
  type VfInfo,
} from '../../src/node/netlink/index.ts';
import { hasNoInterface } from '../../src/node/sriov/driver-binding.ts';
import type { VfHardwareOptions } from '../../src/node/sriov/vf-hardware.ts';
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
  info?: Omit<VfInfo, 'vfIndex'>;
  /** Whether the kernel has iommufd. */
  iommufd?: boolean;
  /** Whether the PF reports the address that a VF has chosen itself as administrative, like igb. */
  tellsOwnAddresses?: boolean;
  /** The MTU of the PF, and the largest one that the driver of the VFs takes. */
  mtu?: { pf: number; vf: number };
  /** Whether its interfaces are IPoIB: addresses of 20 octets, which change at every bind and cannot be set. */
  isInfiniBand?: boolean;
}

export const pfAddress = '0000:01:00.0';
export const soundCard = '0000:02:00.0';
export const vfAddress = (index: number) => `0000:01:10.${index}`;

interface Vf {
  info: VfInfo;
  link?: Link;
  qdiscs: Partial<Record<QdiscPlace, string>>;
  ethtool: EthtoolState;
  /** The link is in another network namespace. */
  isAway?: boolean;
  /** The address in `info` is the VF's own: lost when it is reset. */
  isOwnAddress?: boolean;
}

/**
 * A card with SR-IOV, as far as `src/node/sriov` uses one: a sysfs tree in a temporary directory, the kernel's reactions to
 * writes into it, and rtnetlink of the PF and the VFs. It is as difficult as real ones: a VF without an administrative
 * address gets another one at every bind, its interface another name, and the PF refuses what its driver cannot do.
 * The kernel is older than 6.2: it does not rename an interface that is up.
 */
export class SriovCard implements Disposable {
  readonly #dir = tempDir();
  readonly #options: Required<SriovCardOptions>;
  readonly #vfs: Vf[];
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
  readonly #pf: Link;
  #nextIndex = 10;

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
      isInfiniBand: false,
      mtu: { pf: 9000, vf: 9710 },
      ...options,
    };
    const { vfs, drivers, info } = this.#options;
    this.#pf = { ...this.#newLink('pf0', pfAddress), index: 5, mtuBytes: this.#options.mtu.pf };
    for (const driver of drivers) mkdirSync(this.path('bus/pci/drivers', driver), { recursive: true });
    this.#vfs = Array.from({ length: vfs }, (_, vfIndex) => ({
      ...{ info: { vfIndex, ...info }, qdiscs: {}, ethtool: {} },
    }));
    this.writeText('class/misc/vfio/uevent', 'MAJOR=10\nMINOR=196\nDEVNAME=vfio/vfio\n');
    this.#addFunction(soundCard, '0x040300');
    this.#bind(soundCard, 'snd');
    for (let index = 0; index < vfs; index++) {
      this.#addFunction(vfAddress(index), '0x020000');
      this.#bind(vfAddress(index), this.#options.defaultDriver);
    }
    this.log.length = 0;
  }

  /** As by writing 0 to `sriov_numvfs`: the VFs are removed, and the PF has none. */
  switchOff(): void {
    for (let index = 0; index < this.#vfs.length; index++) {
      rmSync(this.path('bus/pci/devices', vfAddress(index)), { recursive: true });
    }
    this.#vfs.length = 0;
  }

  /** Moves a VF's link into another network namespace. */
  moveAway(vfIndex: number): void {
    this.#vfs[vfIndex]!.isAway = true;
  }

  /** The kernel returns the link, as at the end of that namespace. */
  comeBack(vfIndex: number): void {
    this.#vfs[vfIndex]!.isAway = false;
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
    return this.#vfs[vfIndex]?.info;
  }

  link(vfIndex: number): Link | undefined {
    return this.#vfs[vfIndex]?.link;
  }

  /** The full state of a VF on the host. */
  state(vfIndex: number) {
    const { index: _index, ...link }: Partial<Link> = this.link(vfIndex) ?? {};
    const pciAddress = vfAddress(vfIndex);
    const { qdiscs, ethtool } = this.#vfs[vfIndex] ?? {};
    return structuredClone({
      driver: this.driverOf(pciAddress),
      override: this.overrideOf(pciAddress),
      info: { ...this.info(vfIndex) },
      link,
      qdiscs,
      ethtool,
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
    else if (file.endsWith('/driver_override')) writeFileSync(path, `${value || '(null)'}\n`);
    else throw Object.assign(new Error(`ENOENT: ${file}`), { code: 'ENOENT' });
  };

  /** rtnetlink of the namespace of the card. */
  readonly host: VfHardwareOptions['host'] = {
    links: async () => {
      const pf = structuredClone(this.#pf);
      const here = this.#vfs.filter(({ isAway }) => !isAway);
      return [pf, ...here.flatMap(({ link }) => (link === undefined ? [] : [structuredClone(link)]))];
    },
    vfInfos: async () => {
      if (this.listError !== undefined) throw this.listError;
      return this.#vfs.map(({ info }) => structuredClone(info)).filter(({ vfIndex }) => !this.leftOut.has(vfIndex));
    },
    setVf: async (_pf, vfIndex, change) => this.#setVf(vfIndex, change),
    link: async (by) => {
      const links = await this.host.links();
      return links.find(({ index, name, altNames }) =>
        'index' in by ? index === by.index : name === by.name || altNames.includes(by.name),
      );
    },
    setLink: async (index, change) => {
      const vf = this.#vfAt(index);
      const { hardwareAddress } = vf.info;
      const isOther = change.hardwareAddress !== undefined && change.hardwareAddress !== hardwareAddress;
      if (isOther && hardwareAddress !== undefined && vf.isOwnAddress !== true) throw refusal('EPERM');
      if (change.hardwareAddress !== undefined) parseHardwareAddress(change.hardwareAddress);
      if (change.name !== undefined && vf.link.up) throw refusal('EBUSY');
      if (change.name !== undefined) await this.#checkFree(change.name);
      applyChange(vf.link, change);
      if (vf.isOwnAddress) Object.assign(vf.info, { hardwareAddress: vf.link.hardwareAddress });
    },
    addAltName: async (index, name) => {
      await this.#checkFree(name);
      this.#vfAt(index).link.altNames.push(name);
    },
    removeAltNames: async (index, keep = []) => {
      const { link } = this.#vfAt(index);
      link.altNames = link.altNames.filter((name) => keep.includes(name));
    },
    qdisc: async (index, place) => this.#vfAt(index).qdiscs[place],
    addQdisc: async (index, place, kind) => {
      this.#vfAt(index).qdiscs[place] = kind;
    },
    removeQdisc: async (index, place) => {
      delete this.#vfAt(index).qdiscs[place];
    },
    addresses: async () => [],
    addAddress: async () => undefined,
    removeAddress: async () => undefined,
  };

  /** As by ethtool in a pod. */
  changeSettings(vfIndex: number, change: EthtoolState): void {
    const vf = this.#vfs[vfIndex];
    if (vf !== undefined) vf.ethtool = structuredClone(change);
  }

  /** The settings that the VFs' driver supports in ethtool. */
  readonly ethtool: LinkEthtool = {
    read: async (index) => structuredClone(this.#vfAt(index).ethtool),
    set: async (index, group, values) => {
      Object.assign(this.#vfAt(index).ethtool[group] ?? {}, values);
    },
  };

  [Symbol.dispose](): void {
    this.#dir[Symbol.dispose]();
  }

  #addFunction(pciAddress: string, classCode: string): void {
    const dir = join('bus/pci/devices', pciAddress);
    this.writeText(join(dir, 'class'), `${classCode}\n`);
    this.writeText(join(dir, 'driver_override'), '(null)\n');
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
    const driver = override === '(null)' ? this.#options.defaultDriver : override;
    if (this.#options.drivers.includes(driver) && !this.failingDrivers.has(driver)) this.#bind(pciAddress, driver);
  }

  #bind(pciAddress: string, driver: string): void {
    this.log.push(`bind ${pciAddress} ${driver}`);
    symlinkSync(this.path('bus/pci/drivers', driver), this.path('bus/pci/devices', pciAddress, 'driver'));
    if (driver.includes('vfio')) this.#addVfioNodes(pciAddress);
    const vf = this.#vfs[Number(pciAddress.at(-1))];
    if (pciAddress === soundCard || vf === undefined) return;
    if (vf.isOwnAddress) delete vf.info.hardwareAddress;
    const silent = this.silentProbes.get(driver) ?? 0;
    if (silent > 0) this.silentProbes.set(driver, silent - 1);
    if (hasNoInterface(driver) || silent > 0) return;
    vf.link = this.#newLink(`eth${this.#nextIndex}`, pciAddress);
    mkdirSync(this.path('bus/pci/devices', pciAddress, 'net'));
    vf.isAway = false;
    vf.qdiscs = {};
    vf.ethtool = { rings: { rx: 256, tx: 256 }, features: { 'rx-checksum': true } };
    const { hardwareAddress } = vf.info;
    if (hardwareAddress !== undefined) vf.link.hardwareAddress = hardwareAddress;
    else if (this.#options.tellsOwnAddresses) {
      Object.assign(vf.info, { hardwareAddress: vf.link.hardwareAddress });
      vf.isOwnAddress = true;
    }
  }

  #unbind(pciAddress: string): void {
    this.log.push(`unbind ${pciAddress}`);
    rmSync(this.path('bus/pci/devices', pciAddress, 'driver'));
    const vf = this.#vfs[Number(pciAddress.at(-1))];
    rmSync(this.path('bus/pci/devices', pciAddress, 'net'), { recursive: true, force: true });
    if (vf !== undefined && pciAddress !== soundCard) delete vf.link;
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

  #newLink(name: string, parentDevice: string): Link {
    const index = this.#nextIndex++;
    const last = index.toString(16).padStart(2, '0');
    const guid = 'fe:80:00:00:00:00:00:00:00:11:22:33:44:55:66:77';
    const hardwareAddress = this.#options.isInfiniBand ? `00:00:10:${last}:${guid}` : `02:00:00:00:00:${last}`;
    const limits = { minMtuBytes: 68, maxMtuBytes: this.#options.mtu.vf };
    const state = { mtuBytes: 1500, ...limits, up: false, carrier: false, altNames: [] };
    const settings = { flags: ['multicast' as const], group: 0, txQueueLength: 1000, alias: '' };
    return { index, name, parentDevice, hardwareAddress, ...state, ...settings };
  }

  #vfAt(index: number): Vf & { link: Link } {
    const vf = this.#vfs.find(({ link, isAway }) => link?.index === index && isAway !== true);
    const link = vf?.link;
    if (vf === undefined || link === undefined) throw refusal('ENODEV');
    return Object.assign(vf, { link });
  }

  async #checkFree(name: string): Promise<void> {
    if ((await this.host.link({ name })) !== undefined) throw refusal('EEXIST');
  }

  #setVf(vfIndex: number, change: VfChange): void {
    const info = this.info(vfIndex);
    if (info === undefined) throw refusal('EINVAL');
    // Cards are busy with a VF while they reset it.
    if (this.leftOut.has(vfIndex)) throw refusal('EBUSY');
    for (const property of Object.keys(change) as (keyof VfChange)[]) {
      if (this.#options.unsupported.includes(property)) throw refusal('EOPNOTSUPP');
      this.log.push(`setVf ${vfIndex} ${property}`);
    }
    if (Object.keys(change).every((property) => this.ignored.has(property as keyof VfChange))) return;
    const { hardwareAddress, vlan, rate, ...plain } = change;
    const vf = this.#vfs[vfIndex];
    if (hardwareAddress !== undefined && vf !== undefined) vf.isOwnAddress = false;
    Object.assign(info, plain, rate && { minTxRateMbps: rate.minMbps, maxTxRateMbps: rate.maxMbps });
    if (hardwareAddress === '00:00:00:00:00:00') delete info.hardwareAddress;
    else if (hardwareAddress !== undefined) info.hardwareAddress = hardwareAddress;
    if (vlan?.id === 0) delete info.vlan;
    else if (vlan !== undefined) info.vlan = { priority: 0, protocol: '802.1q', ...vlan };
  }
}

function applyChange(link: Link, { flags = {}, detachXdp, netns: _netns, ...rest }: LinkChange): void {
  Object.assign(link, rest);
  const set = new Set(link.flags);
  for (const [flag, value] of Object.entries(flags) as [LinkFlag, boolean][]) {
    if (value) set.add(flag);
    else set.delete(flag);
  }
  link.flags = [...set];
  if (detachXdp !== undefined) delete link.xdp;
}

function refusal(errno: string): NetlinkError {
  return new NetlinkError('netlink-refused', `cannot do that (${errno})`, { errno, retriable: errno === 'EBUSY' });
}
