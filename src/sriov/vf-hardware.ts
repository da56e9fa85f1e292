import type { Clock } from '../clock.ts';
import { type Link, NetlinkError, type RtnlConnection, type VfChange, type VfInfo } from '../netlink/index.ts';
import { DeviceNodes } from './device-nodes.ts';
import { type DriverBinding, isVfio } from './driver-binding.ts';
import { SriovError } from './errors.ts';
import { assertNoVfProperties } from './plain-nic.ts';
import { isRepresentor } from './representor.ts';
import { VfProperties, type VfPropertiesWanted } from './vf-properties.ts';

/** Which VF, and of which PF. A plain NIC has neither PF nor index. */
export interface VfAddress {
  pciAddress: string;
  pfAddress?: string;
  vfIndex?: number;
}

/** A VF as it was found, to be so again later. */
export interface VfBefore {
  /** Absent: no kernel driver was bound. */
  driver?: string;
  /** What was in `driver_override`; absent: nothing. */
  driverOverride?: string;
  /** What the PF had set. */
  vf: VfChange;
  /** Its interface in the host's namespace; absent if it had none. */
  link?: { name: string; hardwareAddress?: string; mtuBytes: number; up: boolean };
}

/** What a VF shall be like; absent stays as it is. */
export interface VfWanted {
  /** The name of a kernel driver, or `default` for the one that the kernel chooses. */
  driver?: string;
  vf?: VfPropertiesWanted;
}

/** What containers shall get besides the VF itself. */
export interface AccessWanted {
  vhost: boolean;
  rdma: boolean;
}

/** How containers reach a VF other than by a network interface. */
export interface VfAccess {
  /** The kernel driver that it has now. */
  driver?: string;
  /** Absent: it has an interface, or no driver at all. */
  vfio?: { device: string; iommuGroup: string };
  rdmaDevice?: string;
  /** Paths of character devices, the same on the host and in containers. */
  nodes: string[];
}

export interface VfHardwareOptions {
  binding: DriverBinding;
  /** Into the namespace that the PFs' interfaces are in. */
  host: Pick<RtnlConnection, 'links' | 'setLink' | 'vfInfos' | 'setVf'>;
  clock: Clock;
  nodes?: DeviceNodes;
}

const noAddress = '00:00:00:00:00:00';
/** How long an interface may take to appear after its driver was bound. */
const linkAppearsMs = 5_000;
const pollMs = 20;

/** Reads and changes VFs through sysfs and their PFs. */
export class VfHardware {
  readonly #binding: DriverBinding;
  readonly #host: VfHardwareOptions['host'];
  readonly #clock: Clock;
  readonly #nodes: DeviceNodes;
  readonly #properties: VfProperties;

  constructor({ binding, host, clock, nodes = new DeviceNodes() }: VfHardwareOptions) {
    this.#binding = binding;
    this.#host = host;
    this.#clock = clock;
    this.#nodes = nodes;
    this.#properties = new VfProperties({
      host,
      linkOf: (pciAddress) => this.#link(pciAddress),
      driverOf: (pciAddress) => binding.driverOf(pciAddress),
    });
  }

  async read(address: VfAddress): Promise<VfBefore> {
    const driver = await this.#binding.driverOf(address.pciAddress);
    const driverOverride = await this.#binding.overrideOf(address.pciAddress);
    const link = await this.#link(address.pciAddress);
    return {
      ...(driver === undefined ? {} : { driver }),
      ...(driverOverride === undefined ? {} : { driverOverride }),
      vf: await this.#properties.read(address),
      ...(link === undefined ? {} : { link: stateOf(link) }),
    };
  }

  /**
   * Sets what is asked for and leaves the rest; the VF's interface keeps its name. What forbids the whole is looked for
   * before anything is changed.
   * @throws SriovError `binding-failed`, `iommu-group-shared`, `property-unsupported`, `property-refused`, `vf-missing`
   */
  async apply(address: VfAddress, wanted: VfWanted, before: VfBefore): Promise<void> {
    const { pciAddress } = address;
    const { driver } = wanted;
    const toUserSpace = driver !== undefined && isVfio(driver);
    if (address.pfAddress === undefined) assertNoVfProperties(pciAddress, wanted.vf ?? {}, toUserSpace);
    if (toUserSpace) await this.#checkGroup(pciAddress);
    const isNewAddress = await this.#properties.set(address, wanted.vf ?? {});
    const kept = wanted.vf?.hardwareAddress ?? addressToKeep(before);
    if (toUserSpace && kept !== undefined && !isNewAddress) await this.#properties.pinAddress(address, kept);
    const current = await this.#binding.driverOf(pciAddress);
    if (driver === 'default') await this.#binding.bindDefault(pciAddress);
    else if (driver !== undefined) await this.#binding.bind(pciAddress, driver);
    const isSame = (await this.#binding.driverOf(pciAddress)) === current;
    if (isNewAddress && isSame) await this.#rebind(pciAddress, current);
    if (before.link === undefined) return;
    const { hardwareAddress: _new, ...link } = before.link;
    await this.#settleLink(pciAddress, link);
  }

  /**
   * Makes the VF what it was. Can be repeated, and finishes what an earlier attempt began. A step that fails does not
   * keep the others from being made; it is thrown at the end. A VF that is gone, and comes back as a new one, needs none.
   */
  async restore(address: VfAddress, before: VfBefore): Promise<void> {
    const { pciAddress } = address;
    if (!(await this.#binding.isPresent(pciAddress))) return;
    const errors: unknown[] = [];
    const isNewAddress = await this.#properties.set(address, before.vf).catch((error: unknown) => {
      errors.push(error);
      return false;
    });
    const current = await this.#binding.driverOf(pciAddress);
    await this.#binding.bind(pciAddress, before.driver);
    if (isNewAddress && current === before.driver) await this.#rebind(pciAddress, current);
    if (before.driverOverride !== undefined) await this.#binding.setOverride(pciAddress, before.driverOverride);
    if (before.link !== undefined) await this.#settleLink(pciAddress, before.link);
    if (errors.length > 0) throw errors[0];
  }

  /**
   * What containers need to reach the VF as it is now.
   * @throws SriovError `device-node-missing` with what to do
   */
  async access({ pciAddress }: VfAddress, { vhost, rdma }: AccessWanted): Promise<VfAccess> {
    const driver = await this.#binding.driverOf(pciAddress);
    const vfio = driver !== undefined && isVfio(driver) ? await this.#nodes.vfio(pciAddress) : undefined;
    const verbs = rdma && vfio === undefined ? await this.#nodes.rdma(pciAddress) : undefined;
    const vhostNodes = vhost ? await this.#nodes.vhost() : [];
    return {
      ...(driver === undefined ? {} : { driver }),
      ...(vfio === undefined ? {} : { vfio: { device: vfio.device, iommuGroup: vfio.iommuGroup } }),
      ...(verbs === undefined ? {} : { rdmaDevice: verbs.device }),
      nodes: [...(vfio?.nodes ?? []), ...(verbs?.nodes ?? []), ...vhostNodes],
    };
  }

  /** The other devices that go to user space with this one: those of its IOMMU group, without bridges. */
  async groupMembers({ pciAddress }: VfAddress): Promise<string[]> {
    return (await this.#binding.iommuGroup(pciAddress)).others;
  }

  /** What the PF has set: all that can be known of a VF without an interface. */
  async info(address: VfAddress): Promise<VfInfo | undefined> {
    return await this.#properties.info(address);
  }

  /** igbvf, for one, learns of its address only when it is bound. */
  async #rebind(pciAddress: string, driver: string | undefined): Promise<void> {
    if (driver === undefined || isVfio(driver)) return;
    await this.#binding.rebind(pciAddress);
  }

  /** A driver that was bound gives its interface a name of the kernel's choice, which nobody else may know. */
  async #settleLink(pciAddress: string, wanted: NonNullable<VfBefore['link']>): Promise<void> {
    const driver = await this.#binding.driverOf(pciAddress);
    if (driver === undefined || isVfio(driver)) return;
    const { name, hardwareAddress, mtuBytes, up } = wanted;
    const link = await this.#awaitLink(pciAddress);
    if (link.name !== name) await this.#host.setLink(link.index, { up: false, name });
    if (link.mtuBytes !== mtuBytes) await this.#host.setLink(link.index, { mtuBytes });
    if (hardwareAddress !== undefined && link.hardwareAddress !== hardwareAddress) {
      // A VF whose PF has given it an address may have no other, and one that had another has been reset by its driver.
      await this.#host.setLink(link.index, { hardwareAddress }).catch(ignoreRefusal);
    }
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
    const links = await this.#host.links();
    return links.find((link) => link.parentDevice === pciAddress && !isRepresentor(link));
  }

  async #checkGroup(pciAddress: string): Promise<void> {
    const { group, foreign } = await this.#binding.iommuGroup(pciAddress);
    if (foreign.length > 0) {
      const message = `${pciAddress} shares IOMMU group ${group} with ${foreign.join(', ')}`;
      throw new SriovError('iommu-group-shared', message, {
        device: pciAddress,
        hint: 'a group goes to user space as a whole: enable ACS in the firmware, or use this card in kernel mode',
      });
    }
    // Without an IOMMU vfio makes a group of its own, when the device is bound and the administrator allows it.
    if (group !== undefined || (await this.#binding.allowsNoIommu())) return;
    throw new SriovError('binding-failed', `${pciAddress} has no IOMMU group, which vfio needs`, {
      device: pciAddress,
      hint: 'switch the IOMMU on, in the firmware and on Intel machines with intel_iommu=on; without one, only vfio enable_unsafe_noiommu_mode=1',
    });
  }
}

function stateOf({ name, hardwareAddress, mtuBytes, up }: Link): NonNullable<VfBefore['link']> {
  return { name, ...(hardwareAddress === undefined ? {} : { hardwareAddress }), mtuBytes, up };
}

/**
 * A VF without an administrative address takes another one at every reset, and user space resets it. Whether the one that
 * the PF tells is administrative cannot be seen where the interface has the same.
 */
function addressToKeep({ vf, link }: VfBefore): string | undefined {
  const { hardwareAddress } = link ?? {};
  return [noAddress, hardwareAddress].includes(vf.hardwareAddress) ? hardwareAddress : undefined;
}

function ignoreRefusal(error: unknown): void {
  if (!(error instanceof NetlinkError && error.code === 'netlink-refused')) throw error;
}
