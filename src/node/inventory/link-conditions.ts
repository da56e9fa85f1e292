import { defined } from '../../lib/defined.ts';
import { isRepresentor, type Link } from '../netlink/index.ts';
import type { NetworkDevice } from './device.ts';
import type { HeldDevices } from './survey.ts';

/** Conditions of a PCI function that its links and sysfs show. */
export const linkConditions = ['no-carrier', 'pf-down', 'lacp-partner-lost', 'missing-driver'] as const;
export type LinkCondition = (typeof linkConditions)[number];

/** Device that a condition is about: a PF, and so all of its VFs; a NIC that is offered as a whole; or a single VF. */
export interface ConditionSubject {
  pciAddress: string;
  kind: 'PF' | 'NIC' | 'VF';
  /** Interface that shows the condition; for a VF, its representor. */
  interfaceName?: string;
}

/** A condition of a PCI function. */
export interface FunctionCondition extends ConditionSubject {
  condition: LinkCondition;
}

/**
 * Whether a condition holds at one moment. It does not if it cannot apply: a link that is down has no carrier to lose. There
 * is no reading of a state that is unreadable.
 */
export interface ConditionReading extends FunctionCondition {
  isPresent: boolean;
  /** Set if the kernel sends no event when the condition changes. */
  isSilent?: true;
}

/** Facts about a function from sysfs. */
export interface FunctionFacts {
  pciAddress: string;
  driver?: string;
}

export interface ConditionSources {
  pfs: readonly FunctionFacts[];
  /** Offered devices. */
  devices: readonly NetworkDevice[];
  /** Returns the host's links of a function, including representors. */
  linksOf: (pciAddress: string) => Link[];
  /** Returns whether the VF's interface is in a pod, where the host does not see it. */
  isInPod: (pciAddress: string) => boolean;
}

/**
 * Tracks VFs in pods. A VF that was just moved to a pod may not be up yet, so it counts only from its second observation on.
 */
export class VfsInPods {
  #last: ReadonlySet<string> = new Set();

  observe(held: HeldDevices): ConditionSources['isInPod'] {
    const before = this.#last;
    const now = new Set([...held].flatMap(([pciAddress, { isInPod }]) => (isInPod ? [pciAddress] : [])));
    this.#last = now;
    return (pciAddress) => now.has(pciAddress) && before.has(pciAddress);
  }
}

/** Returns the readings of all functions whose state is known. */
export function readConditions({ pfs, devices, linksOf, isInPod }: ConditionSources): ConditionReading[] {
  const ofVfs = Map.groupBy(devices, (device) => (device.kind === 'vf' ? device.pfAddress : undefined));
  return [
    ...pfs.flatMap(({ pciAddress, driver }) => {
      const links = linksOf(pciAddress);
      const representors = Map.groupBy(links.filter(isRepresentor), ({ portName }) => vfIndexOf(portName));
      const ports = links.filter((link) => !isRepresentor(link));
      const subject = subjectOf('PF', pciAddress, ports);
      return [
        { ...subject, condition: 'missing-driver' as const, isPresent: driver === undefined },
        ...ofPorts(subject, ports, ofVfs.has(pciAddress)),
        // If no link of the PF is visible, its representors are not visible either.
        ...(links.length === 0
          ? []
          : (ofVfs.get(pciAddress) ?? []).flatMap((vf) => ofRepresentor(vf, representors, linksOf, isInPod))),
      ];
    }),
    ...devices.flatMap(({ kind, pciAddress }) => {
      if (kind !== 'nic' || pfs.some((pf) => pf.pciAddress === pciAddress)) return [];
      const ports = linksOf(pciAddress).filter((link) => !isRepresentor(link));
      return ofPorts(subjectOf('NIC', pciAddress, ports), ports);
    }),
  ];
}

function subjectOf(kind: ConditionSubject['kind'], pciAddress: string, [link]: readonly Link[]): ConditionSubject {
  return { pciAddress, kind, ...defined({ interfaceName: link?.name }) };
}

/**
 * Returns the conditions of ports. @param hasVfs whether VFs of the function are offered: ports without VFs, and unclaimed
 * NICs, are usually down
 */
function ofPorts(subject: ConditionSubject, ports: readonly Link[], hasVfs = false): ConditionReading[] {
  if (ports.length === 0) return [];
  const partners = ports.flatMap(({ lacpPartnerInSync }) => lacpPartnerInSync ?? []);
  const isAlone = partners.length > 0 && !partners.includes(true);
  // A bond with only one port continues without its partner, so the kernel sends no event.
  const silent = partners.length > 0 ? { isSilent: true as const } : {};
  return [
    { ...subject, condition: 'no-carrier', isPresent: lacksCarrier(ports) },
    ...(subject.kind === 'PF'
      ? [{ ...subject, condition: 'pf-down' as const, isPresent: hasVfs && !ports.some(({ up }) => up) }]
      : []),
    { ...subject, condition: 'lacp-partner-lost', isPresent: isAlone, ...silent },
  ];
}

/**
 * Returns whether no port has a carrier. Only ports that are up count: a link that is down reports none, and a card need not
 * use all of its ports.
 */
function lacksCarrier(ports: readonly Link[]): boolean {
  const inUse = ports.filter(({ up }) => up);
  return inUse.length > 0 && !inUse.some(({ carrier }) => carrier);
}

/**
 * Returns the conditions of a representor. With some cards, it has a carrier only while its VF's interface is up, and the
 * interface of a VF outside pods is usually down: a missing carrier then means nothing.
 */
function ofRepresentor(
  vf: NetworkDevice,
  representors: ReadonlyMap<number | undefined, Link[]>,
  linksOf: ConditionSources['linksOf'],
  isInPod: ConditionSources['isInPod'],
): ConditionReading[] {
  if (vf.kind !== 'vf') return [];
  const links = representors.get(vf.vfIndex) ?? [];
  const own = linksOf(vf.pciAddress);
  const isUsed = own.length === 0 ? isInPod(vf.pciAddress) : own.some(({ up }) => up);
  return [
    { ...subjectOf('VF', vf.pciAddress, links), condition: 'no-carrier', isPresent: isUsed && lacksCarrier(links) },
  ];
}

/**
 * Returns the index of a VF of this host from the port name of its representor: `pf0vf3`, `c0pf0vf3`, `p0pf0vf3`. Source:
 * kernel `devlink_port_phys_port_name_get`.
 */
function vfIndexOf(portName = ''): number | undefined {
  const [, index] = /^(?:c0|p\d+)?pf\d+vf(\d+)$/.exec(portName) ?? [];
  return index === undefined ? undefined : Number(index);
}
