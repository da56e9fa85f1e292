import type { Clock } from '../clock.ts';
import type { Link, RtnlConnection, VfChange, VfInfo } from '../netlink/index.ts';
import { type DriverBinding, isVfio } from './driver-binding.ts';
import { SriovError } from './errors.ts';

/** Which VF, and of which PF. */
export interface VfAddress {
  pciAddress: string;
  pfAddress: string;
  vfIndex: number;
}

/** A VF as it was found, to be so again later. */
export interface VfBefore {
  /** Absent: no kernel driver was bound. */
  driver?: string;
  /** What the PF had set. */
  vf: VfChange;
  /** Its interface in the host's namespace; absent if it had none. */
  link?: { name: string; mtuBytes: number; up: boolean };
}

/** What a VF shall be like; absent stays as it is. */
export interface VfWanted {
  /** The name of a kernel driver, or `default` for the one that the kernel chooses. */
  driver?: string;
  vf?: VfChange;
}

export interface VfHardwareOptions {
  binding: DriverBinding;
  /** Into the namespace that the PFs' interfaces are in. */
  host: RtnlConnection;
  clock: Clock;
}

const noAddress = '00:00:00:00:00:00';
/** How long an interface may take to appear after its driver was bound. */
const linkAppearsMs = 5_000;
const pollMs = 20;

/** Reads and changes VFs through sysfs and their PFs. */
export class VfHardware {
  readonly #binding: DriverBinding;
  readonly #host: RtnlConnection;
  readonly #clock: Clock;

  constructor({ binding, host, clock }: VfHardwareOptions) {
    this.#binding = binding;
    this.#host = host;
    this.#clock = clock;
  }

  async read(address: VfAddress): Promise<VfBefore> {
    const driver = await this.#binding.driverOf(address.pciAddress);
    const link = await this.#link(address.pciAddress);
    return {
      ...(driver === undefined ? {} : { driver }),
      vf: toChange(await this.info(address)),
      ...(link === undefined ? {} : { link: { name: link.name, mtuBytes: link.mtuBytes, up: link.up } }),
    };
  }

  /**
   * Sets what is asked for and leaves the rest; the VF's interface keeps its name.
   * @throws SriovError `binding-failed`, `iommu-group-shared`, `vf-missing`; NetlinkError with the property
   */
  async apply(address: VfAddress, wanted: VfWanted, before: VfBefore): Promise<void> {
    const { pciAddress } = address;
    const isNewAddress = await this.#setProperties(address, wanted.vf ?? {});
    const current = await this.#binding.driverOf(pciAddress);
    if (wanted.driver === 'default') await this.#binding.bindDefault(pciAddress);
    else if (wanted.driver !== undefined) {
      if (isVfio(wanted.driver)) await this.#checkGroup(pciAddress);
      await this.#binding.bind(pciAddress, wanted.driver);
    }
    const isSame = (await this.#binding.driverOf(pciAddress)) === current;
    if (isNewAddress && isSame) await this.#rebind(pciAddress, current);
    if (before.link !== undefined) await this.#settleLink(pciAddress, before.link);
  }

  /** Makes the VF what it was. Can be repeated, and finishes what an earlier attempt began. */
  async restore(address: VfAddress, before: VfBefore): Promise<void> {
    const { pciAddress } = address;
    const isNewAddress = await this.#setProperties(address, before.vf);
    const current = await this.#binding.driverOf(pciAddress);
    await this.#binding.bind(pciAddress, before.driver);
    if (isNewAddress && current === before.driver) await this.#rebind(pciAddress, current);
    if (before.link !== undefined) await this.#settleLink(pciAddress, before.link);
  }

  /** The number of the IOMMU group: the name of the VF's device below `/dev/vfio`. */
  async iommuGroup(pciAddress: string): Promise<string> {
    const { group } = await this.#binding.iommuGroup(pciAddress);
    if (group !== undefined) return group;
    throw new SriovError('binding-failed', `${pciAddress} has no IOMMU group`, {
      device: pciAddress,
      hint: 'switch the IOMMU on: in the firmware, and with intel_iommu=on for the kernel on Intel machines',
    });
  }

  /** What the PF has set: all that can be known of a VF without an interface. */
  async info(address: VfAddress): Promise<VfInfo | undefined> {
    const infos = await this.#host.vfInfos(await this.#pfIndex(address));
    return infos.find(({ vfIndex }) => vfIndex === address.vfIndex);
  }

  /** @returns whether the VF has another administrative address than before */
  async #setProperties(address: VfAddress, wanted: VfChange): Promise<boolean> {
    const change = difference(toChange(await this.info(address)), wanted);
    await this.#host.setVf(await this.#pfIndex(address), address.vfIndex, change);
    return change.hardwareAddress !== undefined;
  }

  /** igbvf, for one, learns of its address only when it is bound. */
  async #rebind(pciAddress: string, driver: string | undefined): Promise<void> {
    if (driver === undefined || isVfio(driver)) return;
    await this.#binding.bind(pciAddress, undefined);
    await this.#binding.bind(pciAddress, driver);
  }

  /** A driver that was bound gives its interface a name of the kernel's choice, which nobody else may know. */
  async #settleLink(pciAddress: string, { name, mtuBytes, up }: NonNullable<VfBefore['link']>): Promise<void> {
    const driver = await this.#binding.driverOf(pciAddress);
    if (driver === undefined || isVfio(driver)) return;
    const link = await this.#awaitLink(pciAddress);
    if (link.name !== name) await this.#host.setLink(link.index, { up: false, name });
    if (link.mtuBytes !== mtuBytes) await this.#host.setLink(link.index, { mtuBytes });
    await this.#host.setLink(link.index, { up });
  }

  async #awaitLink(pciAddress: string): Promise<Link> {
    const endsAt = this.#clock.nowMs() + linkAppearsMs;
    for (;;) {
      const link = await this.#link(pciAddress);
      if (link !== undefined) return link;
      if (this.#clock.nowMs() > endsAt) break;
      await this.#clock.sleep(pollMs);
    }
    throw new SriovError(
      'vf-missing',
      `${pciAddress} has no interface ${linkAppearsMs} ms after its driver was bound`,
      {
        device: pciAddress,
        retriable: true,
        hint: 'the kernel log says why',
      },
    );
  }

  async #link(pciAddress: string): Promise<Link | undefined> {
    return (await this.#host.links()).find(({ parentDevice }) => parentDevice === pciAddress);
  }

  async #checkGroup(pciAddress: string): Promise<void> {
    const { group, foreign } = await this.#binding.iommuGroup(pciAddress);
    if (foreign.length === 0) return;
    throw new SriovError('iommu-group-shared', `${pciAddress} shares IOMMU group ${group} with ${foreign.join(', ')}`, {
      device: pciAddress,
      hint: 'a group goes to user space as a whole: enable ACS in the firmware, or use this card in kernel mode',
    });
  }

  async #pfIndex({ pciAddress, pfAddress }: VfAddress): Promise<number> {
    const pf = await this.#link(pfAddress);
    if (pf !== undefined) return pf.index;
    throw new SriovError('vf-missing', `the PF ${pfAddress} of ${pciAddress} has no network interface`, {
      device: pciAddress,
      retriable: true,
      hint: 'properties of VFs are set through it: it must be in the network namespace of the driver',
    });
  }
}

/** What to set so that a VF is again as the PF says now. */
function toChange(info: VfInfo | undefined): VfChange {
  if (info === undefined) return {};
  const { hardwareAddress = noAddress, vlan, spoofCheck, trust, linkState, minTxRateMbps, maxTxRateMbps } = info;
  return {
    hardwareAddress,
    vlan: vlan ?? { id: 0, priority: 0 },
    ...(spoofCheck === undefined ? {} : { spoofCheck }),
    ...(trust === undefined ? {} : { trust }),
    ...(linkState === undefined ? {} : { linkState }),
    ...(minTxRateMbps === undefined || maxTxRateMbps === undefined
      ? {}
      : { rate: { minMbps: minTxRateMbps, maxMbps: maxTxRateMbps } }),
  };
}

/** What is so already is not set again: many drivers refuse to set what they cannot do, even to what it is. */
function difference(now: VfChange, wanted: VfChange): VfChange {
  const isSame = (a: unknown, b: unknown) => JSON.stringify(a)?.toLowerCase() === JSON.stringify(b)?.toLowerCase();
  const changed = Object.entries(wanted).filter(([property, value]) => !isSame(now[property as keyof VfChange], value));
  return Object.fromEntries(changed);
}
