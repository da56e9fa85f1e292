import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';
import type { NetlinkError } from '../netlink/index.ts';

export type SriovErrorCode =
  /** sysfs cannot be read: the mount or a permission is missing. */
  | 'sysfs-unreadable'
  /** sysfs refused a write. */
  | 'sysfs-unwritable'
  /** A PF does not have the VFs that the policy requests, though nothing was refused, or it cannot be set up for them. */
  | 'vfs-incomplete'
  /** A file of sysfs does not hold what the kernel documents. */
  | 'sysfs-malformed'
  /** The PCI function no longer exists, or it is not a VF. */
  | 'vf-missing'
  /** The kernel does not bind the function to the requested driver. */
  | 'binding-failed'
  /** The function has no interface: it has no kernel driver that makes one, or its driver has made none. */
  | 'interface-missing'
  /** The kernel does not return from a write for the device. */
  | 'device-hangs'
  /** The function cannot be reset now: others depend on it. */
  | 'function-in-use'
  /** Another device of the IOMMU group is in use, so that the group cannot be handed out. */
  | 'iommu-group-shared'
  /** The PF's driver cannot set a property that the claim requests. */
  | 'property-unsupported'
  /** The PF's driver rejects the value of a property. */
  | 'property-refused'
  /** The PF does not report its settings for a VF, or the snapshot of the VF lacks a setting that a claim changes. */
  | 'vf-state-unknown'
  /** Some properties of a device could not be restored; `properties` says which. */
  | 'restore-incomplete'
  /** This node has no character device for what the claim requests. */
  | 'device-node-missing'
  /** The RDMA device of the function belongs to one network namespace, or has no GUID. */
  | 'rdma-unusable'
  /** Something was requested of a plain NIC that only a VF can have. */
  | 'no-vf'
  /** Something was requested of a simulated VF that only hardware has. */
  | 'not-simulated'
  /** The requested simulation is not possible. */
  | 'simulation-invalid'
  /** A foreign interface has the name that a simulated one needs. */
  | 'simulation-name-taken';

export interface SriovErrorDetails extends ErrorDetails {
  properties?: readonly string[];
}

/** Any failure to find, describe, change or simulate VFs. */
export class SriovError extends NetdraError<SriovErrorCode, SriovErrorDetails> {
  /** Properties that could not be set or restored: members of `VfChange`, or paths into `VfSnapshot` such as `link.name`. */
  declare readonly properties: readonly string[];

  constructor(code: SriovErrorCode, message: string, details?: SriovErrorDetails) {
    super(code, message, { properties: [], ...details });
  }
}

/** A VF whose settings cannot be read, for messages. */
interface UnreportedVf {
  device: string;
  subject: string;
  pf: string;
}

interface UnknownVfStateDetails extends SriovErrorDetails {
  /** Whether waiting may help: the VF may be in reset, or the kernel was short of memory. */
  mayPass?: boolean;
  /** Whether the PF reports none of its VFs, and perhaps never does. */
  reportsNone?: boolean;
}

/**
 * `vf-state-unknown`: a PF's settings for a VF are unknown, which is not the same as unset. Always retriable: the PF may
 * report them later.
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

  /** @param reportsNone whether the PF reports no VF at all */
  static leftOut({ device, subject, pf }: UnreportedVf, reportsNone: boolean): UnknownVfStateError {
    const hint = 'either the VF is being reset, or the driver of the PF does not report it: the kernel log may say why';
    return new UnknownVfStateError(`${pf} does not report ${subject}`, { device, reportsNone, mayPass: true, hint });
  }

  static unreadable({ device, subject, pf }: UnreportedVf, cause: NetlinkError): UnknownVfStateError {
    const causes = { cause, mayPass: cause.retriable, reportsNone: !cause.retriable, hint: unreadableHint(cause) };
    return new UnknownVfStateError(`cannot read the settings of ${subject} at ${pf}`, { device, ...causes });
  }

  /** Returns the problem of a scan. */
  static notListed({ device, pf }: { device: string; pf: string }, cause: NetlinkError): UnknownVfStateError {
    const message = `cannot list the VFs of ${pf}: they are offered without the MACs that it has set`;
    const hint = unreadableHint(cause);
    return new UnknownVfStateError(message, { device, cause, mayPass: cause.retriable, hint });
  }
}

/** Returns the error of a function that the node does not have now. */
export function missingFunction(device: string): SriovError {
  const hint = 'it may be in error recovery: the kernel log says more';
  return new SriovError('vf-missing', `${device} does not exist at present`, { device, retriable: true, hint });
}

/** Returns the error of a VF whose PF has no network interface. */
export function missingPf({ pciAddress, pfAddress }: { pciAddress: string; pfAddress?: string }): SriovError {
  const message = `the PF ${pfAddress} of ${pciAddress} has no network interface`;
  const hint = 'properties of VFs are set through it: it must be in the network namespace of the driver';
  return new SriovError('vf-missing', message, { device: pciAddress, retriable: true, hint });
}

/** Returns what to do about a PF whose VFs cannot be listed. */
function unreadableHint({ errno, hint }: NetlinkError): string {
  if (errno === 'EMSGSIZE')
    return 'the list does not fit into one answer of the kernel: switch on fewer VFs of this PF';
  return hint ?? 'the kernel log may say why';
}
