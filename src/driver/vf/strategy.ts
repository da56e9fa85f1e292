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

/** State of a VF for its metadata: the state of its interface, or the known facts about a VF without an interface. */
export type VfState = InterfaceAddresses &
  Partial<LinkFacts> & {
    hardwareAddress: string | undefined;
    /** IPv4 addresses that other hosts of the network have, too, with their MAC addresses; absent if none is known. */
    conflicts?: ReadonlyMap<string, string>;
    /** VLAN ID that the PF puts on the VF's frames; absent: untagged, or unknown. */
    vlan?: number;
    /** State of the VF itself if it is a member of a bond. The other fields then describe the bond. */
    member?: MemberState;
    /** Further differences from class and claim; absent if they were not compared. */
    differences?: Difference[];
    /** Name of the VF's RDMA device, which udev may have changed since the VF was prepared. */
    rdmaDevice?: string;
  };

/** State of the VF's own interface in the pod, which is a member of the bond. */
export interface MemberState extends LinkFacts {
  /** Whether the bond sends and receives through the VF. */
  isActive: boolean;
}

/** A VF and the sandbox that it is to be attached to. */
export interface AttachTarget {
  device: StoredDevice;
  place: SandboxPlace;
}

/** Task of attaching a VF to a sandbox. */
export interface AttachTask extends AttachTarget {
  pod: PodLinks;
  /** Link that the strategy's `creates` has returned. */
  created?: CreatedLink;
  /** State to restore on the host, from an earlier attachment of the VF. */
  before?: LinkState;
  /** Stores the VF's sandbox, with the state to restore. Must be called before the host is changed. */
  record(host?: LinkState): void;
  /**
   * Configures the VF on the host as its claim requests. Must be called before a VF is attached again, after it has left a
   * pod or sandbox: its PF may have been reset since.
   */
  reconfigure(): Promise<void>;
  signal: AbortSignal;
}

/** Moves VFs into a pod and back, for one value of `attach` in the claim's configuration. */
export interface AttachStrategy {
  /**
   * Whether netdra moves the device's own link to the host when it is detached. If not, the link stays where it is: the
   * device has none, another component moves it, or the pod has only a link on top of it.
   */
  readonly movesDevice: boolean;
  /** Returns the link that attaching creates in the pod and detaching deletes. Devices of a group share one link. */
  creates?(claimUid: string, device: StoredDevice): CreatedLink | undefined;
  /**
   * Attaches and configures the VF as its claim requests, and reads its state. Idempotent.
   * @throws SandboxError `vf-missing`, `interface-name-taken`, `bond-refused`, `vrf-refused`; NetlinkError, CniError,
   * SriovError
   */
  attach(task: AttachTask): Promise<VfState>;
  /**
   * Reads the VF's state in the pod; `undefined` if it is certainly not there.
   * @param known last reading; without it, routes and sysctls are not compared with the claim
   * @throws SandboxError `vf-unknown`; NetlinkError
   */
  read(device: StoredDevice, pod: PodLinks, known?: NetworkDeviceData): Promise<VfState | undefined>;
  /** Releases resources other than links, such as addresses, before links are deleted and moved. Idempotent. */
  release?(device: StoredDevice, attachment: Attachment): Promise<void>;
}

/**
 * Returns the error for a VF that cannot be attached.
 * @param reason end of the message; not needed if `cause` explains the error
 * @param cause gives the hint, and whether a retry can help
 */
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
 * Awaits a change that names a link in a pod, and converts a name conflict to a SandboxError.
 * @param name name of the link, from the claim or from the host
 * @throws SandboxError `interface-name-taken`; other errors of the change
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

/** Returns the error for devices that have left their pod. @param devices devices of one claim; at least one */
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

/** Returns the pod as text: `pod default/app`. */
export function podOf({ podNamespace, podName }: SandboxPlace): string {
  return `pod ${podNamespace}/${podName}`;
}
