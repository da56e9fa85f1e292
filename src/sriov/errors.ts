import { type ErrorDetails, NetdraError } from '../errors.ts';

export type SriovErrorCode =
  /** sysfs cannot be read: a missing mount, or a right that we lack. */
  | 'sysfs-unreadable'
  /** sysfs refused a write. */
  | 'sysfs-unwritable'
  /** A file of sysfs does not hold what the kernel documents. */
  | 'sysfs-malformed'
  /** There is no such PCI function any more, or it is no VF. */
  | 'vf-missing'
  /** The kernel does not bind the function to the driver that was asked for. */
  | 'binding-failed'
  /** The kernel does not come back from a write for the device. */
  | 'device-hangs'
  /** The function cannot be reset now: others depend on it. */
  | 'function-in-use'
  /** Another device of the IOMMU group is in use, so that the group cannot be handed out. */
  | 'iommu-group-shared'
  /** The PF's driver cannot set a property that the claim asks for. */
  | 'property-unsupported'
  /** The PF's driver does not take the value of a property. */
  | 'property-refused'
  /** Some properties of a device could not be made what they were; `properties` says which. */
  | 'restore-incomplete'
  /** What the claim asks for has no character device on this node. */
  | 'device-node-missing'
  /** A plain NIC was asked for what only a VF can have. */
  | 'no-vf'
  /** A simulated VF was asked for what only hardware has. */
  | 'not-simulated'
  /** The simulation cannot be as it is asked for. */
  | 'simulation-invalid'
  /** An interface of somebody else has the name that a simulated one needs. */
  | 'simulation-name-taken';

export interface SriovErrorDetails extends ErrorDetails {
  properties?: readonly string[];
}

/** Whatever goes wrong with finding, describing, changing or simulating VFs. */
export class SriovError extends NetdraError<SriovErrorCode> {
  /** What could not be set or restored: members of `VfChange`, or paths into `VfBefore` such as `link.name`. */
  readonly properties: readonly string[];

  constructor(code: SriovErrorCode, message: string, details: SriovErrorDetails = {}) {
    super(code, message, details);
    this.properties = details.properties ?? [];
  }
}
