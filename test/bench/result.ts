import type { Distribution } from './stats.ts';

export type Unit = 'ms' | 'MB' | 'wake-ups';

/** One measured value, with its reference. */
export interface Row {
  what: string;
  unit: Unit;
  ours: Distribution;
  /** Measured in the same run, alternating with ours. */
  reference?: Distribution & { what: string };
  /** Ratio of the medians. */
  ratio?: number;
}

/** A maximum that the project has set itself. */
export interface Bound {
  what: string;
  value: number;
  /** Maximum. */
  limit: number;
  unit: Unit | '×';
  met: boolean;
}

export interface Table {
  head: string[];
  lines: string[][];
}

/** Results of one bench. */
export interface BenchResult {
  name: string;
  /** Description of the measurement, in a sentence or two. */
  about: string;
  rows: Row[];
  bounds: Bound[];
  /** Other figures, each table with the titles of its columns. */
  tables?: Table[];
  /** Other observations. */
  notes?: string[];
}

export function row(what: string, unit: Unit, ours: Distribution, reference?: Distribution & { what: string }): Row {
  return {
    what,
    unit,
    ours,
    ...(reference === undefined ? {} : { reference, ratio: ours.median / reference.median }),
  };
}

export function bound(what: string, value: number, limit: number, unit: Bound['unit']): Bound {
  return { what, value, limit, unit, met: value <= limit };
}
