import { isEthernetAddress, type LinkState, type VfChange } from '../netlink/index.ts';
import { isVfio } from './driver-binding.ts';
import { noAddress, type VfPropertiesWanted } from './property-values.ts';

/** Identity of a VF and its PF. A whole NIC has neither a PF nor an index. */
export interface VfAddress {
  pciAddress: string;
  pfAddress?: string;
  vfIndex?: number;
}

/** State of a VF before its claim, which is restored at unprepare. Plain data that can be stored. */
export interface VfSnapshot {
  /** Kernel driver; absent if none was bound. */
  driver?: string;
  /** Content of `driver_override`; absent if it was empty. */
  driverOverride?: string;
  /** Settings of the PF for the VF. Absent settings are unknown and must not be changed. */
  vf: VfChange;
  /** State of the VF's interface on the host; absent if it had no interface there. */
  link?: LinkState;
}

/** Purpose of a snapshot, which decides what it must contain. */
export interface SnapshotOptions {
  /** Changes that will be made after the snapshot. */
  wanted?: VfWanted;
  /** Whether another component, such as a CNI plugin, may change the PF's settings. */
  byOthers?: boolean;
  /** Whether to include the addresses and routes that the host has configured on the interface. */
  withHostConfig?: boolean;
}

export interface RestoreOptions {
  /** Settings of the claim that were made through the PF. The snapshot may lack their original values. */
  changed?: VfPropertiesWanted;
  /**
   * Whether to reset the function even if it has the right driver: a kernel driver is bound again, and with vfio the file
   * `reset` of sysfs is used. A reset undoes settings that cannot be read, such as RSS tables, flow rules and BPF programs.
   * Default: true. Whole NICs and PFs are never reset.
   */
  reset?: boolean;
}

/** Wanted configuration of a VF. Absent properties stay unchanged. */
export interface VfWanted {
  /** Name of a kernel driver; `default` for the driver that the kernel chooses. */
  driver?: string;
  vf?: VfPropertiesWanted;
}

/** Files that containers get besides those of the VF itself. */
export interface AccessWanted {
  vhost: boolean;
  rdma: boolean;
}

/** Access of containers to a VF, other than by a network interface. */
export interface VfAccess {
  /** Present kernel driver of the VF. */
  driver?: string;
  /** VFIO access; absent if the VF has an interface, or no driver at all. */
  vfio?: { device: string; iommuGroup: string };
  rdmaDevice?: string;
  /** Paths of character devices, which are the same on the host and in containers. */
  nodes: string[];
}

/**
 * Returns the address to make administrative for a VF in user space. Without an administrative address, a VF takes another
 * address at every reset, and programs in user space reset it. If the interface has the address that the PF reports, it is
 * unknown whether that address is administrative, so it is returned, too.
 */
export function addressToKeep({ vf, link }: VfSnapshot): string | undefined {
  const { hardwareAddress } = link ?? {};
  if (hardwareAddress === undefined || !isEthernetAddress(hardwareAddress)) return undefined;
  return [noAddress, hardwareAddress].includes(vf.hardwareAddress ?? '') ? hardwareAddress : undefined;
}

/**
 * Returns whether the VF must keep its present MAC in user space: it gets a vfio driver, the claim sets no MAC, and its
 * interface has a valid one. The MAC to keep may differ from that of the interface, if the PF has set another.
 */
export function keepsAddress({ driver, vf }: VfWanted, { link }: VfSnapshot): boolean {
  const { hardwareAddress } = link ?? {};
  const isOwn = hardwareAddress !== undefined && isEthernetAddress(hardwareAddress);
  return isVfio(driver) && vf?.hardwareAddress === undefined && isOwn;
}
