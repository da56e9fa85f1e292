import type { VfIdentity } from '../netlink/index.ts';
import type { LinkType } from '../sriov/net-interface.ts';
import { formatSimulatedAlias } from '../sriov/pci-address.ts';
import type { RdmaNetnsMode } from '../sriov/rdma-mode.ts';
import type { PciFunction, Vf } from '../sriov/sysfs.ts';
import type { Bandwidth } from './bandwidth.ts';

/** Mode of a PF's embedded switch: by MAC and VLAN (`legacy`), or configured through representors on the host (`switchdev`). */
export type EswitchMode = 'legacy' | 'switchdev';

/** An offered device, with facts from sysfs and, about its interface, from netlink. */
interface Offered extends PciFunction {
  /** Name of the device in its pool, such as `0000-3b-02-1`. */
  name: string;
  simulated: boolean;
  /** Name of the device's interface on the host, as last seen there. */
  interfaceName?: string;
  /** MAC address, lower case with colons. */
  hardwareAddress?: string;
  mtuBytes?: number;
  /** Link type of the port, as last seen; for a VF, the port of its PF. */
  linkType?: LinkType;
  linkSpeedMbps?: number;
  /** Names of RDMA devices, such as `mlx5_2`. */
  rdmaDevices: string[];
  /** RDMA namespace mode of the node, if the device has RDMA devices. */
  rdmaNetnsMode?: RdmaNetnsMode;
  /** Value of the attribute `k8s.cni.cncf.io/resourceName`, which the operator sets for Multus. */
  resourceName?: string;
}

export interface VfDevice extends Offered, Vf {
  kind: 'vf';
  pfName?: string;
  eswitchMode?: EswitchMode;
  /** Guarantee of the inventory policy; absent if there is none. */
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

/** Returns the properties by which the device's link is found, in any namespace. */
export function linkIdentity({ pciAddress, simulated }: LinkOwner): VfIdentity {
  return simulated ? { alias: formatSimulatedAlias(pciAddress) } : { pciAddress };
}
