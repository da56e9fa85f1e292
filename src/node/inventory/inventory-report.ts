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
   * What could not be read, or switched on; the devices concerned are neither offered nor excluded. If only a PF's list of
   * its VFs is unreadable (`vf-state-unknown`), the VFs are offered without the facts in it.
   */
  problems: SriovError[];
  /** Rules of the policy that select nothing, and why the devices of device plugins are unknown. */
  warnings: string[];
  /** All network functions that can have VFs. */
  pfs: PfSummary[];
  /** Readings of each condition of the functions, whether it holds or not. */
  readings: ConditionReading[];
  /** Whether it was known what other DRA drivers offer. Otherwise their devices are not excluded. */
  knowsOtherDrivers: boolean;
  /** PCI addresses of all functions that can have conditions: PFs and offered devices; absent: some could not be read. */
  subjects?: ReadonlySet<string>;
}

export function emptyReport(): InventoryReport {
  return { devices: [], excluded: [], problems: [], warnings: [], pfs: [], readings: [], knowsOtherDrivers: true };
}

/** A PF and the number of its VFs. */
export interface PfSummary extends FunctionFacts {
  totalVfs: number;
  names: string[];
  numVfs: number;
  /** Speed of its port, as last seen. */
  linkSpeedMbps?: number;
}

/** Adds a problem, unless its device disappeared while it was read: the next scan does not find it. */
export function addProblem(report: InventoryReport, problem: SriovError): void {
  if (!isGone(problem)) report.problems.push(problem);
}

export function isGone({ code, retriable }: SriovError): boolean {
  return code === 'sysfs-unreadable' && retriable;
}
