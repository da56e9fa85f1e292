import { type ErrorDetails, NetdraError } from '../errors.ts';

export type SriovErrorCode =
  /** sysfs cannot be read: the mount or a permission is missing. */
  | 'sysfs-unreadable'
  /** sysfs refused a write. */
  | 'sysfs-unwritable'
  /** A file of sysfs does not hold what the kernel documents. */
  | 'sysfs-malformed'
  /** The PCI function no longer exists, or it is not a VF. */
  | 'vf-missing'
  /** The kernel does not bind the function to the requested driver. */
  | 'binding-failed'
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
  /** Some properties of a device could not be restored; `properties` says which. */
  | 'restore-incomplete'
  /** This node has no character device for what the claim requests. */
  | 'device-node-missing'
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
export class SriovError extends NetdraError<SriovErrorCode> {
  /** What could not be set or restored: members of `VfChange`, or paths into `VfBefore` such as `link.name`. */
  readonly properties: readonly string[];

  constructor(code: SriovErrorCode, message: string, details: SriovErrorDetails = {}) {
    super(code, message, details);
    this.properties = details.properties ?? [];
  }
}
