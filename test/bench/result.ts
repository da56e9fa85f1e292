import type { Distribution } from './stats.ts';

export type Unit = 'ms' | 'MB' | 'writes' | 'system calls';

/** One thing that was measured, and what it is measured by. */
export interface Row {
  what: string;
  unit: Unit;
  ours: Distribution;
  /** Measured in the same run, in turns with ours. */
  reference?: Distribution & { what: string };
  /** Median by median. */
  ratio?: number;
}

/** What issue 8 demands. */
export interface Bound {
  what: string;
  value: number;
  /** Not more than. */
  limit: number;
  unit: Unit | '×';
  met: boolean;
}

/** How a cost grows. */
export interface Series {
  name: string;
  /** x is a number of VFs, claims or pods, y in the unit of the chart. */
  points: [x: number, y: number][];
}

export interface Plot {
  /** Name of the file, without its end. */
  name: string;
  title: string;
  xLabel: string;
  yLabel: string;
  series: Series[];
}

/** What one bench gives. */
export interface BenchResult {
  name: string;
  /** What was done, in a sentence or two. */
  about: string;
  rows: Row[];
  bounds: Bound[];
  plots?: Plot[];
  /** What else was seen. */
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
