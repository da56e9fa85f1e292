import { defined } from '../../lib/defined.ts';
import { isRepresentor, type Link } from '../netlink/index.ts';
import type { NetworkDevice } from './device.ts';

/** Conditions of a card's function that its links and sysfs show. */
export const linkConditions = ['no-carrier', 'pf-down', 'lacp-partner-lost', 'missing-driver'] as const;
export type LinkCondition = (typeof linkConditions)[number];

/** The device that a condition is about: a PF, and so all its VFs; a NIC that is offered as a whole; or a single VF. */
export interface ConditionSubject {
  pciAddress: string;
  kind: 'PF' | 'NIC' | 'VF';
  /** Interface that shows it; for a VF, its representor's. */
  interfaceName?: string;
}

/** A condition of a function. */
export interface FunctionCondition extends ConditionSubject {
  condition: LinkCondition;
}

/** Whether the condition holds at one moment. Unreadable states are not among the readings. */
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
  /** Returns the host's links of a function. */
  linksOf: (pciAddress: string) => Link[];
  /** Returns whether a claim has the VF: the host does not see the links of VFs in pods, which are up. */
  isHeld: (pciAddress: string) => boolean;
}

/** Returns the conditions of all functions whose state is known. */
export function readConditions({ pfs, devices, linksOf, isHeld }: ConditionSources): ConditionReading[] {
  const ofVfs = Map.groupBy(devices, (device) => (device.kind === 'vf' ? device.pfAddress : undefined));
  return [
    ...pfs.flatMap(({ pciAddress, driver }) => {
      const links = linksOf(pciAddress);
      const [representors, ports] = [links.filter(isRepresentor), links.filter((link) => !isRepresentor(link))];
      const subject = subjectOf('PF', pciAddress, ports);
      return [
        { ...subject, condition: 'missing-driver' as const, isPresent: driver === undefined },
        ...ofPorts(subject, ports, ofVfs.has(pciAddress)),
        ...(ofVfs.get(pciAddress) ?? []).flatMap((vf) => ofRepresentor(vf, representors, linksOf, isHeld)),
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

/** @param hasVfs whether VFs of the function are offered: ports without VFs, and unclaimed NICs, are usually down */
function ofPorts(subject: ConditionSubject, ports: readonly Link[], hasVfs = false): ConditionReading[] {
  if (ports.length === 0) return [];
  const isPresent = lacksCarrier(ports);
  const partners = ports.flatMap(({ lacpPartnerInSync }) => lacpPartnerInSync ?? []);
  const isAlone = partners.length > 0 && !partners.includes(true);
  // A bond with one port continues without its partner, and reports nothing.
  const silent = partners.length > 0 ? { isSilent: true as const } : {};
  return [
    ...(isPresent === undefined ? [] : [{ ...subject, condition: 'no-carrier' as const, isPresent }]),
    ...(subject.kind === 'PF'
      ? [{ ...subject, condition: 'pf-down' as const, isPresent: hasVfs && !ports.some(({ up }) => up) }]
      : []),
    { ...subject, condition: 'lacp-partner-lost', isPresent: isAlone, ...silent },
  ];
}

/**
 * Returns whether no port has a carrier. A link that is down has none to report, and a card's ports need not all be in use,
 * so that only ports that are up count.
 */
function lacksCarrier(ports: readonly Link[]): boolean | undefined {
  const inUse = ports.filter(({ up }) => up);
  return inUse.length === 0 ? undefined : !inUse.some(({ carrier }) => carrier);
}

/**
 * Returns the conditions of a representor. With some cards it has a carrier only while its VF's interface is up, and the
 * interface of an unclaimed VF is usually down: a missing carrier then means nothing.
 */
function ofRepresentor(
  vf: NetworkDevice,
  representors: readonly Link[],
  linksOf: ConditionSources['linksOf'],
  isHeld: ConditionSources['isHeld'],
): ConditionReading[] {
  if (vf.kind !== 'vf') return [];
  const links = representors.filter(({ portName }) => vfIndexOf(portName) === vf.vfIndex);
  const isPresent = lacksCarrier(links);
  const isUsed = isHeld(vf.pciAddress) || linksOf(vf.pciAddress).some(({ up }) => up);
  if (isPresent === undefined || (isPresent && !isUsed)) return [];
  return [{ ...subjectOf('VF', vf.pciAddress, links), condition: 'no-carrier', isPresent }];
}

/**
 * Returns the index of a VF of this host from its port name: `pf0vf3`, `c0pf0vf3`, `p0pf0vf3`. Source: kernel
 * `devlink_port_phys_port_name_get`.
 */
function vfIndexOf(portName = ''): number | undefined {
  const [, index] = /^(?:c0|p\d+)?pf\d+vf(\d+)$/.exec(portName) ?? [];
  return index === undefined ? undefined : Number(index);
}
