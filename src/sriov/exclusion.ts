import type { Usage } from './host-network.ts';
import type { PfRule } from './inventory-policy.ts';

export type ExclusionReason =
  /** An interface of it carries the node's default route, itself or below a bond, bridge or VLAN. */
  | 'carries-default-route'
  /** An interface of it is a port of a bond, bridge or Open vSwitch, or in a VRF. */
  | 'enslaved'
  /** An interface of it has an address of the node: for storage, or for time. */
  | 'has-address'
  /** The node has a VLAN, macvlan or the like on an interface of it. */
  | 'has-upper'
  /** The first two of its PF. */
  | 'pf-carries-default-route'
  | 'pf-enslaved'
  /** The policy names other VFs. */
  | 'not-selected'
  /** A whole NIC whose VFs are switched on: they are what is offered of it. */
  | 'has-vfs'
  /** A whole NIC that a hypervisor made up: there is no card to hand out. */
  | 'virtio'
  /** The interface is in another network namespace, and not for one of our claims. */
  | 'interface-elsewhere';

/** A device that is not offered, and why. */
export interface Exclusion {
  pciAddress: string;
  /** Of a VF. */
  pfAddress?: string;
  reason: ExclusionReason;
  /** The interface that it is about. */
  interfaceName?: string;
}

/** What is true of a PF for its VFs as well. */
const ofPfToo = { 'carries-default-route': 'pf-carries-default-route', enslaved: 'pf-enslaved' } as const;

type Verdict = Pick<Exclusion, 'reason' | 'interfaceName'> | undefined;

/** PCI vendor of what hypervisors make up. */
const virtioVendor = '1af4';

/**
 * Whether a VF must not be offered.
 * @param rule the one that is about it, if any
 * @param own what the node does with its interface
 * @param ofPf what the node does with the interface of its PF
 */
export function judgeVf(rule: PfRule | undefined, own: Usage | undefined, ofPf: Usage | undefined): Verdict {
  if (rule === undefined) return { reason: 'not-selected' };
  if (own !== undefined) return own;
  if (ofPf === undefined || rule.allowInUse) return undefined;
  const { reason, interfaceName } = ofPf;
  if (reason !== 'carries-default-route' && reason !== 'enslaved') return undefined;
  return { reason: ofPfToo[reason], interfaceName };
}

/** Drivers that hand a device to user space, so that it has no interface. */
const userSpaceDriver = /vfio|uio|^pci-stub$/;

/** What is known of a NIC that a rule selects. */
export interface NicFacts {
  vendor: string;
  driver?: string;
  interfaceName?: string;
  rdmaDevices: string[];
  /** What the node does with it. */
  usage: Usage | undefined;
  hasVfs: boolean;
}

/** Whether a NIC must not be offered that a rule selects. */
export function judgeNic(nic: NicFacts): Verdict {
  const { vendor, driver, interfaceName, rdmaDevices, usage, hasVfs } = nic;
  if (usage !== undefined) return usage;
  if (vendor === virtioVendor || driver === 'virtio-pci') return { reason: 'virtio' };
  if (hasVfs) return { reason: 'has-vfs' };
  const hasNone = driver === undefined || userSpaceDriver.test(driver) || rdmaDevices.length > 0;
  return interfaceName === undefined && !hasNone ? { reason: 'interface-elsewhere' } : undefined;
}
