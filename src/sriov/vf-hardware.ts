import type { RtnlConnection, VfChange } from '../netlink/index.ts';
import type { DriverBinding } from './driver-binding.ts';
import { SriovError } from './errors.ts';

/** Which VF, and of which PF. */
export interface VfAddress {
  pciAddress: string;
  pfAddress: string;
  vfIndex: number;
}

/** What can be changed of a VF from outside: its kernel driver, and what its PF has set for it. */
export interface VfSetup {
  /** Absent: none is bound. */
  driver?: string;
  vf: VfChange;
}

const noAddress = '00:00:00:00:00:00';

/** Reads and changes VFs through sysfs and their PFs. */
export class VfHardware {
  readonly #binding: DriverBinding;
  readonly #host: RtnlConnection;

  /** @param host into the namespace that the PFs' interfaces are in */
  constructor(binding: DriverBinding, host: RtnlConnection) {
    this.#binding = binding;
    this.#host = host;
  }

  /** What to give to {@link apply} later, to have the VF as it is now. */
  async read(address: VfAddress): Promise<VfSetup> {
    const driver = await this.#binding.driverOf(address.pciAddress);
    const info = await this.#info(address);
    const {
      hardwareAddress = noAddress,
      vlan,
      spoofCheck,
      trust,
      linkState,
      minTxRateMbps,
      maxTxRateMbps,
    } = info ?? {};
    const vf: VfChange = info === undefined ? {} : { hardwareAddress, vlan: vlan ?? { id: 0 } };
    if (spoofCheck !== undefined) vf.spoofCheck = spoofCheck;
    if (trust !== undefined) vf.trust = trust;
    if (linkState !== undefined) vf.linkState = linkState;
    if (minTxRateMbps !== undefined && maxTxRateMbps !== undefined) {
      vf.rate = { minMbps: minTxRateMbps, maxMbps: maxTxRateMbps };
    }
    return { ...(driver === undefined ? {} : { driver }), vf };
  }

  /**
   * Sets what is asked for and leaves the rest. A new MAC reaches an interface only when its driver is bound again
   * (igbvf keeps the old one), so it is.
   * @param wanted `driver` absent: the driver stays, whichever it is
   * @throws SriovError `binding-failed`, `iommu-group-shared`, `vf-missing`; NetlinkError with the property
   */
  async apply(address: VfAddress, wanted: VfSetup): Promise<void> {
    const changesAddress = await this.#applyProperties(address, wanted.vf);
    const { pciAddress } = address;
    const current = await this.#binding.driverOf(pciAddress);
    const driver = wanted.driver ?? current;
    if (driver !== undefined && /vfio/.test(driver)) await this.#checkGroup(pciAddress);
    if (changesAddress && driver === current) await this.#binding.bind(pciAddress, undefined);
    await this.#binding.bind(pciAddress, driver);
  }

  /** The number of the IOMMU group: the name of the VF's device below `/dev/vfio`. */
  async iommuGroup(pciAddress: string): Promise<string> {
    const { group } = await this.#binding.iommuGroup(pciAddress);
    if (group !== undefined) return group;
    throw new SriovError('binding-failed', `${pciAddress} has no IOMMU group`, {
      device: pciAddress,
      hint: 'switch the IOMMU on: firmware, and intel_iommu=on for the kernel on Intel machines',
    });
  }

  /** The address that the PF has for the VF: all that is known of one without an interface. */
  async adminAddress(address: VfAddress): Promise<string | undefined> {
    return (await this.#info(address))?.hardwareAddress;
  }

  async #applyProperties(address: VfAddress, wanted: VfChange): Promise<boolean> {
    if (Object.keys(wanted).length === 0) return false;
    const info = await this.#info(address);
    // What is so already is not set again: many drivers refuse to set what they cannot do, even to what it is.
    const change: VfChange = { ...wanted };
    if ((info?.hardwareAddress ?? noAddress) === wanted.hardwareAddress?.toLowerCase()) delete change.hardwareAddress;
    if (wanted.vlan !== undefined && (info?.vlan?.id ?? 0) === wanted.vlan.id && wanted.vlan.id === 0)
      delete change.vlan;
    if (info?.spoofCheck === wanted.spoofCheck) delete change.spoofCheck;
    if (info?.trust === wanted.trust) delete change.trust;
    if (info?.linkState === wanted.linkState) delete change.linkState;
    const { minMbps, maxMbps } = wanted.rate ?? {};
    if (info?.minTxRateMbps === minMbps && info?.maxTxRateMbps === maxMbps) delete change.rate;
    await this.#host.setVf(await this.#pfIndex(address), address.vfIndex, change);
    return change.hardwareAddress !== undefined;
  }

  async #checkGroup(pciAddress: string): Promise<void> {
    const { group, foreign } = await this.#binding.iommuGroup(pciAddress);
    if (foreign.length === 0) return;
    throw new SriovError('iommu-group-shared', `${pciAddress} shares IOMMU group ${group} with ${foreign.join(', ')}`, {
      device: pciAddress,
      hint: 'a group goes to user space as a whole: enable ACS in the firmware, or leave this card to kernel mode',
    });
  }

  async #info({ pfAddress, vfIndex, pciAddress }: VfAddress) {
    const infos = await this.#host.vfInfos(await this.#pfIndex({ pfAddress, vfIndex, pciAddress }));
    return infos.find((each) => each.vfIndex === vfIndex);
  }

  async #pfIndex({ pciAddress, pfAddress }: VfAddress): Promise<number> {
    const pf = (await this.#host.links()).find(({ parentDevice }) => parentDevice === pfAddress);
    if (pf !== undefined) return pf.index;
    throw new SriovError('vf-missing', `the PF ${pfAddress} of ${pciAddress} has no network interface`, {
      device: pciAddress,
      retriable: true,
      hint: 'its properties are set through that interface: is it in the namespace of the driver?',
    });
  }
}
