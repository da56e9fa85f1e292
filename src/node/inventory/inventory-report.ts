import type { SriovError } from '../sriov/errors.ts';
import type { NetworkDevice } from './device.ts';
import type { Exclusion } from './exclusion.ts';
import type { ConditionReading, FunctionFacts } from './link-conditions.ts';

/** Result of a scan. */
export interface InventoryReport {
  /** Offered devices, sorted by PCI address. */
  devices: NetworkDevice[];
  /** Excluded VFs, and excluded NICs that the policy selects. */
  excluded: Exclusion[];
  /**
   * Errors of devices that could not be read, or whose VFs could not be enabled; these devices are neither offered nor
   * excluded. If only a PF's list of its VFs is unreadable (`vf-state-unknown`), the VFs are offered without the facts from
   * the list.
   */
  problems: SriovError[];
  /** Messages about policy rules that select nothing, and about device plugins whose devices are unknown. */
  warnings: string[];
  /** All network functions that can have VFs. */
  pfs: PfSummary[];
  /** Readings of the conditions of all functions, whether a condition holds or not. */
  readings: ConditionReading[];
  /** Whether the devices of other DRA drivers were known. If not, they are not excluded. */
  knowsOtherDrivers: boolean;
  /**
   * PCI addresses of all functions that can have conditions: PFs and offered devices. Absent if some functions could not be
   * read.
   */
  subjects?: ReadonlySet<string>;
}

export function emptyReport(): InventoryReport {
  return { devices: [], excluded: [], problems: [], warnings: [], pfs: [], readings: [], knowsOtherDrivers: true };
}

/** A PF, and the numbers of its VFs. */
export interface PfSummary extends FunctionFacts {
  totalVfs: number;
  names: string[];
  numVfs: number;
  /** Speed of the PF's port, Mbit/s, as last seen. */
  linkSpeedMbps?: number;
}

/** Adds a problem to a report, unless the device disappeared while it was read: the next scan does not find it any more. */
export function addProblem(report: InventoryReport, problem: SriovError): void {
  if (!isGone(problem)) report.problems.push(problem);
}

export function isGone({ code, retriable }: SriovError): boolean {
  return code === 'sysfs-unreadable' && retriable;
}
