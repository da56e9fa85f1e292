import type { VfIdentity } from '../netlink/index.ts';
import type { LinkType } from '../sriov/net-interface.ts';
import { formatSimulatedAlias } from '../sriov/pci-address.ts';
import type { RdmaNetnsMode } from '../sriov/rdma-mode.ts';
import type { PciFunction, Vf } from '../sriov/sysfs.ts';
import type { Bandwidth } from './bandwidth.ts';

/** How the PF switches between its VFs: by MAC and VLAN, or as configured through representors on the host. */
export type EswitchMode = 'legacy' | 'switchdev';

/** An offered device, with facts from sysfs and, about its interface, from netlink. */
interface Offered extends PciFunction {
  /** Name in its pool, e.g. `0000-3b-02-1`. */
  name: string;
  simulated: boolean;
  /** Name of its interface on the host, as last seen there. */
  interfaceName?: string;
  /** MAC address, lower case with colons. */
  hardwareAddress?: string;
  mtuBytes?: number;
  /** Link type of the port, as last seen; for a VF, of its PF's port. */
  linkType?: LinkType;
  linkSpeedMbps?: number;
  /** RDMA device names such as `mlx5_2`. */
  rdmaDevices: string[];
  /** The node's mode, if the device has RDMA devices. */
  rdmaNetnsMode?: RdmaNetnsMode;
  /** Name by which Multus knows the device, set by the operator. */
  resourceName?: string;
}

export interface VfDevice extends Offered, Vf {
  kind: 'vf';
  pfName?: string;
  eswitchMode?: EswitchMode;
  /** Guarantee of the inventory policy; absent: none. */
  bandwidth?: Bandwidth;
}

/** A physical function that is offered as a whole. */
export interface NicDevice extends Offered {
  kind: 'nic';
}

export type NetworkDevice = VfDevice | NicDevice;

/** Facts that identify a device's link. */
export interface LinkOwner {
  pciAddress: string;
  simulated: boolean;
}

/** Returns how to find the device's link, in whatever namespace it is. */
export function linkIdentity({ pciAddress, simulated }: LinkOwner): VfIdentity {
  return simulated ? { alias: formatSimulatedAlias(pciAddress) } : { pciAddress };
}
