import { printable } from '../../lib/printable.ts';
import { hasNoInterface } from '../sriov/driver-binding.ts';
import type { Bandwidth } from './bandwidth.ts';
import type { Usage } from './host-network.ts';
import type { NicRule, PfRule } from './inventory-policy.ts';

export type ExclusionReason =
  /** One of its interfaces carries the node's default route, directly or below a bond, bridge or VLAN. */
  | 'carries-default-route'
  /** One of its interfaces is a port of a bond, bridge or Open vSwitch, or in a VRF. */
  | 'enslaved'
  /** One of its interfaces has an address of the node, such as for storage or for time. */
  | 'has-address'
  /** The node has a VLAN, macvlan or the like on one of its interfaces. */
  | 'has-upper'
  /** An interface of its PF carries the default route, or is a port of a bond, bridge or Open vSwitch, or in a VRF. */
  | 'pf-carries-default-route'
  | 'pf-enslaved'
  /** No rule of the policy selects it. */
  | 'not-selected'
  /** It is a whole NIC with VFs that are enabled, or about to be: the VFs are offered instead. */
  | 'has-vfs'
  /** It is a whole NIC that is a virtual device of a hypervisor: there is no card to offer. */
  | 'virtio'
  /** Its interface is in another network namespace, although no claim of this driver has it. */
  | 'interface-elsewhere'
  /** A program has it open through vfio, although no claim of this driver has it. */
  | 'open-elsewhere'
  /** A program has another device of its IOMMU group open through vfio, although no claim of this driver has that device. */
  | 'group-open'
  /** A device plugin of the kubelet manages it. */
  | 'device-plugin'
  /** A device plugin may manage it: the record of the kubelet cannot be read. */
  | 'device-plugin-unknown'
  /** Another DRA driver offers it in its ResourceSlices. */
  | 'other-driver'
  /** The policy guarantees bandwidth of a port, but neither the policy nor the kernel gives the speed of the port. */
  | 'port-speed-unknown'
  /** The policy guarantees more bandwidth than the port has. */
  | 'guarantee-above-port'
  /** The policy guarantees bandwidth by rates that the card refuses. */
  | 'rates-unsupported';

/** Reason why a device is not offered. */
export interface ExclusionVerdict {
  reason: ExclusionReason;
  /** Interface that causes the exclusion. */
  interfaceName?: string;
  /** Guarantee that exceeds the speed of the port. */
  bandwidth?: Bandwidth;
  /** Resource name under which a device plugin manages the device. */
  resourceName?: string;
  /** Other DRA driver that offers the device. */
  driver?: string;
  /** PCI address of the other device of the IOMMU group. */
  peer?: string;
  /** Field of the policy that cannot be fulfilled, such as `pfs[0].bandwidth.burst`. */
  field?: string;
}

/** A device that is not offered, with the reason. */
export interface Exclusion extends ExclusionVerdict {
  pciAddress: string;
  /** PCI address of the PF, if the device is a VF. */
  pfAddress?: string;
}

const explanations: Record<ExclusionReason, string> = {
  'carries-default-route':
    "the node's default route goes through it; for a whole NIC the policy can say allowInUse: default-route",
  enslaved: 'it is a port of a bond, bridge or Open vSwitch, or in a VRF',
  'has-address': 'the node has an address on it; for a whole NIC the policy can say allowInUse: addresses',
  'has-upper': 'the node has a VLAN, macvlan or similar interface on it',
  'pf-carries-default-route': "the node's default route goes through its PF; the policy can say allowInUse",
  'pf-enslaved': 'its PF is a port of a bond, bridge or Open vSwitch, or in a VRF; the policy can say allowInUse',
  'not-selected': 'no rule of the policy selects it',
  'has-vfs': 'its VFs are on, or switched on by the policy, and are offered in its place',
  virtio: 'a virtual device of the hypervisor; there is no card to offer',
  'interface-elsewhere': 'its interface is in another network namespace, and no claim has it',
  'open-elsewhere': 'a program has it open through vfio, and no claim has it: end the program',
  'group-open':
    'a program has another device of its IOMMU group open through vfio, and no claim has that one: end the program, or enable ACS in the firmware',
  'device-plugin': 'a device plugin offers it; let only one of the two offer it',
  'device-plugin-unknown': 'a device plugin may offer it: the record of the kubelet cannot be read',
  'other-driver': 'another DRA driver offers it; let only one of the two offer it',
  'port-speed-unknown': 'the speed of its port is unknown; set portMbps in the policy',
  'guarantee-above-port': 'its guarantee exceeds the speed of its port',
  'rates-unsupported': 'its card rejects the rates of its guaranteed bandwidth; change the rule of the policy',
};

/** Returns the reason why a device is not offered, as text. */
export function explainExclusion({ reason, bandwidth, field, resourceName, driver, peer }: ExclusionVerdict): string {
  const other = resourceName ?? driver ?? peer;
  if (other !== undefined) return `${explanations[reason]}: ${printable(other, 128)}`;
  if (field !== undefined) return `${explanations[reason]}: ${field}`;
  if (bandwidth === undefined) return explanations[reason];
  return `${explanations[reason]}: ${bandwidth.guaranteedMbps} of ${bandwidth.portMbps} Mbit/s`;
}

/** Reasons of a PF that also exclude its VFs, with the reason of the VFs. */
const ofPfToo = { 'carries-default-route': 'pf-carries-default-route', enslaved: 'pf-enslaved' } as const;

/** PCI vendor of virtio devices. */
const virtioVendor = '1af4';

/**
 * Returns the reason to exclude a VF, if there is one.
 * @param rule rule that covers the VF, if any
 * @param own use of the VF's interface by the node
 * @param ofPf use of the PF's interface by the node
 */
export function judgeVf(
  rule: PfRule | undefined,
  own: Usage | undefined,
  ofPf: Usage | undefined,
): ExclusionVerdict | undefined {
  if (rule === undefined) return { reason: 'not-selected' };
  if (own !== undefined) return own;
  if (ofPf === undefined || rule.allowInUse) return undefined;
  const { reason, interfaceName } = ofPf;
  if (reason !== 'carries-default-route' && reason !== 'enslaved') return undefined;
  return { reason: ofPfToo[reason], interfaceName };
}

/**
 * Returns the uses by the node in spite of which a rule offers a NIC. If it allows default routes, it also allows addresses.
 */
export function allowedUses({ allowInUse }: NicRule): Usage['reason'][] {
  if (allowInUse === undefined) return [];
  return allowInUse === 'addresses' ? ['has-address'] : ['has-address', 'carries-default-route'];
}

/** Facts about a NIC that a rule selects. */
interface NicFacts {
  vendor: string;
  driver?: string;
  interfaceName?: string;
  rdmaDevices: readonly string[];
}

/**
 * Returns the reason to exclude a NIC that a rule selects, if there is one.
 * @param usage use of the NIC by the node
 */
export function judgeNic(nic: NicFacts, usage: Usage | undefined, hasVfs: boolean): ExclusionVerdict | undefined {
  const { vendor, driver, interfaceName, rdmaDevices } = nic;
  if (usage !== undefined) return usage;
  if (vendor === virtioVendor || driver === 'virtio-pci') return { reason: 'virtio' };
  if (hasVfs) return { reason: 'has-vfs' };
  const hasNone = hasNoInterface(driver) || rdmaDevices.length > 0;
  return interfaceName === undefined && !hasNone ? { reason: 'interface-elsewhere' } : undefined;
}

/** Use of a device by other components. */
interface ForeignUse {
  isElsewhere: boolean;
  isOpen?: true;
  openPeer?: string;
}

/** Returns the reason to exclude a device that another component uses although no claim has it, if there is one. */
export function judgePlace({ isElsewhere, isOpen, openPeer }: ForeignUse): ExclusionVerdict | undefined {
  if (isOpen) return { reason: 'open-elsewhere' };
  if (openPeer !== undefined) return { reason: 'group-open', peer: openPeer };
  return isElsewhere ? { reason: 'interface-elsewhere' } : undefined;
}
