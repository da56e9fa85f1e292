import { isEthernetAddress, type LinkState, type VfChange } from '../netlink/index.ts';
import { isVfio } from './driver-binding.ts';
import { noAddress, type VfPropertiesWanted } from './property-values.ts';

/** Identifies a VF, and its PF. A plain NIC has neither PF nor index. */
export interface VfAddress {
  pciAddress: string;
  pfAddress?: string;
  vfIndex?: number;
}

/** Snapshot of a VF, restored when its claim is unprepared. Plain data, to be stored. */
export interface VfSnapshot {
  /** Kernel driver; absent: none was bound. */
  driver?: string;
  /** Content of `driver_override`; absent: empty. */
  driverOverride?: string;
  /** The PF's settings for it; absent ones are unknown and must not be changed. */
  vf: VfChange;
  /** Its interface in the host's namespace; absent if it had none. */
  link?: LinkState;
}

/** Purpose of a snapshot. */
export interface SnapshotOptions {
  /** Changes that will be made. */
  wanted?: VfWanted;
  /** Whether another component, such as a CNI plugin, may change the PF's settings. */
  byOthers?: boolean;
  /** Whether to take the addresses and routes that the host has configured on its interface, too. */
  withHostConfig?: boolean;
}

export interface RestoreOptions {
  /** Settings of the claim that were made through the PF: a snapshot may lack the original values. */
  changed?: VfPropertiesWanted;
  /**
   * Whether the function is reset even if it has the right driver, by binding that again; with vfio by the `reset` of
   * sysfs: that undoes settings that cannot be read, such as RSS tables, flow rules and BPF programs. Default true. Never
   * done with plain NICs and PFs.
   */
  reset?: boolean;
}

/** Wanted configuration of a VF; absent properties stay unchanged. */
export interface VfWanted {
  /** Name of a kernel driver, or `default` for the one that the kernel chooses. */
  driver?: string;
  vf?: VfPropertiesWanted;
}

/** What containers get besides the VF itself. */
export interface AccessWanted {
  vhost: boolean;
  rdma: boolean;
}

/** How containers reach a VF other than by a network interface. */
export interface VfAccess {
  /** Its present kernel driver. */
  driver?: string;
  /** VFIO access; absent: the VF has an interface, or no driver at all. */
  vfio?: { device: string; iommuGroup: string };
  rdmaDevice?: string;
  /** Paths of character devices, the same on the host and in containers. */
  nodes: string[];
}

/**
 * Returns the address to make administrative for user space: without one, a VF takes another address at every reset, and
 * user space resets it. If the interface has the address that the PF reports, it is unknown whether that address is
 * administrative.
 */
export function addressToKeep({ vf, link }: VfSnapshot): string | undefined {
  const { hardwareAddress } = link ?? {};
  if (hardwareAddress === undefined || !isEthernetAddress(hardwareAddress)) return undefined;
  return [noAddress, hardwareAddress].includes(vf.hardwareAddress ?? '') ? hardwareAddress : undefined;
}

/** Returns whether a VF for user space keeps the MAC of its interface, or another that its PF may have set. */
export function keepsAddress({ driver, vf }: VfWanted, { link }: VfSnapshot): boolean {
  const { hardwareAddress } = link ?? {};
  const isOwn = hardwareAddress !== undefined && isEthernetAddress(hardwareAddress);
  return isVfio(driver) && vf?.hardwareAddress === undefined && isOwn;
}
