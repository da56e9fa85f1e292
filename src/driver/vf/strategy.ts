import type { NetworkDeviceData } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { NetdraError } from '../../lib/errors.ts';
import { type InterfaceAddresses, type LinkFacts, type LinkState, NetlinkError } from '../../node/netlink/index.ts';
import {
  type Attachment,
  type CreatedLink,
  groupOf,
  SandboxError,
  type SandboxPlace,
  type StoredDevice,
} from '../model/index.ts';
import type { Difference } from './claim-differences.ts';
import type { PodLinks } from './pod-links.ts';

/** State of a VF for its metadata: that of its interface, or the known facts about a VF without one. */
export type VfState = InterfaceAddresses &
  Partial<LinkFacts> & {
    hardwareAddress: string | undefined;
    /** IPv4 addresses that other hosts of the network also have, with their MAC addresses; absent: none is known. */
    conflicts?: ReadonlyMap<string, string>;
    /** VLAN ID that the PF puts on the VF's frames; absent: untagged, or unknown. */
    vlan?: number;
    /** State of the VF itself if it is a member of a bond: the other fields then describe the bond. */
    member?: MemberState;
    /** Further differences from class and claim; absent: not compared. */
    differences?: Difference[];
    /** Name of its RDMA device, which udev may have changed since the VF was prepared. */
    rdmaDevice?: string;
  };

/** The VF's own interface in the pod, which the bond uses. */
export interface MemberState extends LinkFacts {
  /** Whether the bond sends and receives through it. */
  isActive: boolean;
}

/** A VF and its intended sandbox. */
export interface AttachTarget {
  device: StoredDevice;
  place: SandboxPlace;
}

/** A VF to attach to a sandbox. */
export interface AttachTask extends AttachTarget {
  pod: PodLinks;
  /** What the strategy's `creates` has returned. */
  created?: CreatedLink;
  /** From an earlier attachment of the VF: the state that still has to be restored. */
  before?: LinkState;
  /** Stores the VF's place, with the state to restore. Call it before the host is changed. */
  record(host?: LinkState): void;
  /**
   * Configures the VF from outside as its claim requests. Call it before a VF is attached again: it has left the pod, or
   * that sandbox, and its PF may have been reset since.
   */
  reconfigure(): Promise<void>;
  signal: AbortSignal;
}

/** Moves VFs into a pod and back, for one value of `attach` in the claim's configuration. */
export interface AttachStrategy {
  /**
   * Whether netdra takes the device's own link to the host when it is detached. Otherwise the link stays where it is: the device has
   * none, another component moves it, or the pod has a link that uses it.
   */
  readonly movesDevice: boolean;
  /** Returns the link that attaching creates in the pod, and detaching deletes; devices of a group have the same one. */
  creates?(claimUid: string, device: StoredDevice): CreatedLink | undefined;
  /**
   * Attaches and configures the VF as its claim asks, and reads its state. Idempotent.
   * @throws SandboxError `vf-missing`, `interface-name-taken`, `bond-refused`, `vrf-refused`; NetlinkError, CniError, SriovError
   */
  attach(task: AttachTask): Promise<VfState>;
  /**
   * Reads the VF's state in the pod; `undefined` if it is certainly not there.
   * @param known the last reading; without it, routes and kernel settings are not compared with the claim
   * @throws SandboxError `vf-unknown`; NetlinkError
   */
  read(device: StoredDevice, pod: PodLinks, known?: NetworkDeviceData): Promise<VfState | undefined>;
  /** Gives back what attaching has taken besides links, such as addresses, before links are deleted and moved. Idempotent. */
  release?(device: StoredDevice, attachment: Attachment): Promise<void>;
}

/** @param cause explains the error if there is no reason */
export function missingError(
  { device: { name, pciAddress }, place }: AttachTarget,
  reason?: string,
  cause?: NetdraError,
): SandboxError {
  const message = `device ${name} (${pciAddress}) cannot be attached to ${podOf(place)}`;
  return new SandboxError('vf-missing', reason === undefined ? message : `${message}: ${reason}`, {
    device: name,
    hint: cause?.hint ?? 'netdra inventory lists the devices of the node',
    ...(cause === undefined ? {} : { cause, retriable: cause.retriable }),
  });
}

/**
 * Awaits a change that names a link in a pod, and turns a conflict into a SandboxError.
 * @param name the link's name, from the claim or else from the host
 * @throws SandboxError `interface-name-taken`; what the change throws
 */
export async function orNameTaken<T>(task: AttachTarget, name: string, change: Promise<T>): Promise<T> {
  try {
    return await change;
  } catch (error) {
    throw error instanceof NetlinkError && error.errno === 'EEXIST' ? nameTakenError(task, name, error) : error;
  }
}

export function nameTakenError(
  { device: { name: device, pciAddress }, place }: AttachTarget,
  name: string,
  cause?: NetdraError,
): SandboxError {
  const message = `device ${device} (${pciAddress}) cannot have the name ${name} in ${podOf(place)}: an interface there has that name`;
  const hint =
    'give the claim another `interfaceName`, or none: the default network of the pod has eth0, and other components, such as Multus, may have other names';
  return new SandboxError('interface-name-taken', message, { ...defined({ cause }), device, hint });
}

/** @param devices of one claim that are no longer in its pod; at least one */
export function leftError(devices: readonly StoredDevice[], place: SandboxPlace, cause?: unknown): SandboxError {
  const names = devices.map(({ name, pciAddress }) => `${name} (${pciAddress})`).join(', ');
  const text = devices.length === 1 ? `device ${names} is` : `devices ${names} are`;
  const groups = new Set(devices.flatMap((device) => groupOf(device) ?? []));
  const where = `the network namespace of ${podOf(place)}${[...groups].map((name) => ` and in ${name}`).join('')}`;
  return new SandboxError('vf-left', `${text} no longer in ${where}`, {
    cause,
    device: devices.map(({ name }) => name).join(', '),
    retriable: true,
    hint: 'the card was reset, or a process in the pod has moved or deleted the interface or the bond; the driver attaches the device again once it is back',
  });
}

/** Returns `pod default/app`. */
export function podOf({ podNamespace, podName }: SandboxPlace): string {
  return `pod ${podNamespace}/${podName}`;
}
