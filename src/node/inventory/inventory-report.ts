import type { SriovError } from '../sriov/errors.ts';
import type { NetworkDevice } from './device.ts';
import type { Exclusion } from './exclusion.ts';
import type { ConditionReading, FunctionFacts } from './link-conditions.ts';

/** What a scan has found. */
export interface InventoryReport {
  /** Sorted by PCI address. */
  devices: NetworkDevice[];
  /** VFs, and NICs that the policy selects. */
  excluded: Exclusion[];
  /**
   * What could not be read, or switched on; the devices concerned are neither offered nor excluded. If it is only a PF's list
   * of its VFs (`vf-state-unknown`), they are offered without the facts that it has.
   */
  problems: SriovError[];
  /** Rules of the policy that select nothing, and why device plugins are unknown. */
  warnings: string[];
  /** All network functions that can have VFs. */
  pfs: PfSummary[];
  /** What is wrong with the functions, and what is not. */
  readings: ConditionReading[];
  /** PCI addresses of all network functions; absent: not all of them could be read. */
  functions?: ReadonlySet<string>;
}

export function emptyReport(): InventoryReport {
  return { devices: [], excluded: [], problems: [], warnings: [], pfs: [], readings: [] };
}

/** A PF, and how many VFs it has. */
export interface PfSummary extends FunctionFacts {
  totalVfs: number;
  names: string[];
  numVfs: number;
  /** Of its port, as last seen. */
  linkSpeedMbps?: number;
}

/** A device that disappeared while it was read is not a problem: the next scan does not find it. */
export function addProblem(report: InventoryReport, problem: SriovError): void {
  if (!isGone(problem)) report.problems.push(problem);
}

export function isGone({ code, retriable }: SriovError): boolean {
  return code === 'sysfs-unreadable' && retriable;
}
