import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';
import type { NetlinkError } from '../netlink/index.ts';

export type SriovErrorCode =
  /** sysfs cannot be read: it is not mounted, a permission is missing, or the device was removed. */
  | 'sysfs-unreadable'
  /** The kernel refused a write to sysfs. */
  | 'sysfs-unwritable'
  /** A PF has fewer VFs than the policy requests although the kernel reported no error, or cannot be set up for VFs. */
  | 'vfs-incomplete'
  /** The content of a sysfs file is not what the kernel documents. */
  | 'sysfs-malformed'
  /** The PCI function no longer exists, or it is not a VF. */
  | 'vf-missing'
  /** The kernel does not bind the function to the requested driver. */
  | 'binding-failed'
  /** The function has no interface: it has no kernel driver that creates one, or its driver has created none. */
  | 'interface-missing'
  /** The kernel does not return from a write for the device. */
  | 'device-hangs'
  /** The PF cannot be bound to its driver again while it has VFs, since they would vanish. */
  | 'function-in-use'
  /** Another device of the IOMMU group is in use, so the group cannot be assigned to user space. */
  | 'iommu-group-shared'
  /** The PF's driver cannot set a property that the claim requests. */
  | 'property-unsupported'
  /** The PF's driver rejects the value of a property. */
  | 'property-refused'
  /** The PF does not report its settings for a VF, or the snapshot of the VF lacks a setting that a claim changes. */
  | 'vf-state-unknown'
  /** Some properties of a device could not be restored; `properties` lists them. */
  | 'restore-incomplete'
  /** The node lacks a character device that the claim requests. */
  | 'device-node-missing'
  /** The node's RDMA devices are in exclusive mode, or the VF's RDMA device has no GUID. */
  | 'rdma-unusable'
  /** The claim requests a setting for a whole NIC that only a VF can have. */
  | 'no-vf'
  /** The claim requests something of a simulated VF that only hardware has. */
  | 'not-simulated'
  /** The requested simulation is not possible. */
  | 'simulation-invalid'
  /** An interface that netdra has not created has the name that a simulated interface needs. */
  | 'simulation-name-taken';

export interface SriovErrorDetails extends ErrorDetails {
  properties?: readonly string[];
}

/** Error of finding, describing, changing or simulating VFs. */
export class SriovError extends NetdraError<SriovErrorCode, SriovErrorDetails> {
  /** Properties that could not be set or restored: members of `VfChange`, or paths into `VfSnapshot` such as `link.name`. */
  declare readonly properties: readonly string[];

  constructor(code: SriovErrorCode, message: string, details?: SriovErrorDetails) {
    super(code, message, { properties: [], ...details });
  }
}

/** A VF whose settings cannot be read: its PCI address, and texts for messages about the VF and its PF. */
interface UnreportedVf {
  device: string;
  subject: string;
  pf: string;
}

interface UnknownVfStateDetails extends SriovErrorDetails {
  /** Whether the problem may pass soon: the VF may be in reset, or the kernel was short of memory. */
  mayPass?: boolean;
  /** Whether the PF reports none of its VFs. Perhaps it never does. */
  reportsNone?: boolean;
}

/**
 * `vf-state-unknown`: a PF's settings for a VF are unknown, which does not mean that they are unset. Always retriable: the PF
 * may report them later.
 */
export class UnknownVfStateError extends SriovError {
  readonly mayPass: boolean;
  readonly reportsNone: boolean;

  constructor(message: string, details: UnknownVfStateDetails = {}) {
    const { mayPass = false, reportsNone = false, ...more } = details;
    super('vf-state-unknown', message, { ...more, retriable: true });
    this.mayPass = mayPass;
    this.reportsNone = reportsNone;
  }

  static withoutPf(pfAddress: string): UnknownVfStateError {
    const message = `the PF ${pfAddress} has no network interface, so the settings of its VFs are unknown`;
    const hint = 'bind the kernel driver of the PF, and keep its interface in the network namespace of the driver';
    return new UnknownVfStateError(message, { device: pfAddress, hint });
  }

  /** Returns the error for a VF that its PF does not report. @param reportsNone whether the PF reports no VF at all */
  static leftOut({ device, subject, pf }: UnreportedVf, reportsNone: boolean): UnknownVfStateError {
    const hint = 'either the VF is being reset, or the driver of the PF does not report it: the kernel log may say why';
    return new UnknownVfStateError(`${pf} does not report ${subject}`, { device, reportsNone, mayPass: true, hint });
  }

  static unreadable({ device, subject, pf }: UnreportedVf, cause: NetlinkError): UnknownVfStateError {
    const causes = { cause, mayPass: cause.retriable, reportsNone: !cause.retriable, hint: unreadableHint(cause) };
    return new UnknownVfStateError(`cannot read the settings of ${subject} at ${pf}`, { device, ...causes });
  }

  /** Returns the problem of a scan for a PF whose VFs cannot be listed. */
  static notListed({ device, pf }: { device: string; pf: string }, cause: NetlinkError): UnknownVfStateError {
    const message = `cannot list the VFs of ${pf}: they are offered without the MACs that it has set`;
    const hint = unreadableHint(cause);
    return new UnknownVfStateError(message, { device, cause, mayPass: cause.retriable, hint });
  }
}

/** Returns the error for a PCI function that does not exist at the moment. */
export function missingFunction(device: string): SriovError {
  const hint = 'it may be in error recovery: the kernel log says more';
  return new SriovError('vf-missing', `${device} does not exist at present`, { device, retriable: true, hint });
}

/** Returns the error for a VF whose PF has no network interface. */
export function missingPf({ pciAddress, pfAddress }: { pciAddress: string; pfAddress?: string }): SriovError {
  const message = `the PF ${pfAddress} of ${pciAddress} has no network interface`;
  const hint = 'properties of VFs are set through it: it must be in the network namespace of the driver';
  return new SriovError('vf-missing', message, { device: pciAddress, retriable: true, hint });
}

/** Returns the remedy for a PF whose VFs cannot be listed. */
function unreadableHint({ errno, hint }: NetlinkError): string {
  if (errno === 'EMSGSIZE')
    return 'the list does not fit into one answer of the kernel: switch on fewer VFs of this PF';
  return hint ?? 'the kernel log may say why';
}
