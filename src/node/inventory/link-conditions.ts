import { defined } from '../../lib/defined.ts';
import { isRepresentor, type Link } from '../netlink/index.ts';
import type { NetworkDevice } from './device.ts';

/** What can be wrong with a function of a card, as far as its links and sysfs show it. */
export const linkConditions = ['no-carrier', 'pf-down', 'lacp-partner-lost', 'missing-driver'] as const;
export type LinkCondition = (typeof linkConditions)[number];

/** Of whom a condition is: of a PF, and so of all its VFs; of a NIC that is offered as a whole; of a single VF. */
export interface ConditionSubject {
  pciAddress: string;
  kind: 'PF' | 'NIC' | 'VF';
  /** The interface that shows it: of a VF, its representor's. */
  interfaceName?: string;
}

/** A condition of a function. */
export interface FunctionCondition extends ConditionSubject {
  condition: LinkCondition;
}

/** Whether something is wrong, as one look shows it. A state that cannot be read is not among the readings. */
export interface ConditionReading extends FunctionCondition {
  isPresent: boolean;
  /** The kernel reports no change of it. */
  isSilent?: true;
}

/** What is known of a function from sysfs. */
export interface FunctionFacts {
  pciAddress: string;
  driver?: string;
}

export interface ConditionSources {
  pfs: readonly FunctionFacts[];
  /** That are offered. */
  devices: readonly NetworkDevice[];
  /** The host's links of a function. */
  linksOf: (pciAddress: string) => Link[];
  /** Of VFs in pods the host sees no link, and these are up. */
  isHeld: (pciAddress: string) => boolean;
}

/** Reads the conditions of all functions whose state is known. */
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

/** @param hasVfs whether VFs of the function are offered: ports without VFs, and NICs that no claim has, are usually down */
function ofPorts(subject: ConditionSubject, ports: readonly Link[], hasVfs = false): ConditionReading[] {
  if (ports.length === 0) return [];
  const isPresent = lacksCarrier(ports);
  const partners = ports.flatMap(({ lacpPartnerInSync }) => lacpPartnerInSync ?? []);
  const isAlone = partners.length > 0 && !partners.includes(true);
  // A bond of one port goes on without its partner, and reports nothing.
  const silent = partners.length > 0 ? { isSilent: true as const } : {};
  return [
    ...(isPresent === undefined ? [] : [{ ...subject, condition: 'no-carrier' as const, isPresent }]),
    ...(subject.kind === 'PF'
      ? [{ ...subject, condition: 'pf-down' as const, isPresent: hasVfs && !ports.some(({ up }) => up) }]
      : []),
    { ...subject, condition: 'lacp-partner-lost', isPresent: isAlone, ...silent },
  ];
}

/** A link that is down has no carrier to report; a card's ports need not all be in use, so those that are up decide. */
function lacksCarrier(ports: readonly Link[]): boolean | undefined {
  const inUse = ports.filter(({ up }) => up);
  return inUse.length === 0 ? undefined : !inUse.some(({ carrier }) => carrier);
}

/**
 * With some cards a representor has a carrier only while its VF's interface is up, and the interface of a VF that no claim has
 * is usually down: a missing carrier then says nothing.
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

/** Of this host's VFs: `pf0vf3`, `c0pf0vf3`, `p0pf0vf3`. Source: kernel `devlink_port_phys_port_name_get`. */
function vfIndexOf(portName = ''): number | undefined {
  const [, index] = /^(?:c0|p\d+)?pf\d+vf(\d+)$/.exec(portName) ?? [];
  return index === undefined ? undefined : Number(index);
}
