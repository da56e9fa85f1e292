export type FindingLevel = 'ok' | 'warning' | 'problem';

/** Result of a check of the node, in one line. */
export interface Finding {
  /** What was checked, in a word or two: `IOMMU`. */
  check: string;
  /** `problem`: netdra does not work this way. `warning`: a part of it does not work, or nothing is known. */
  level: FindingLevel;
  message: string;
  /** What to do, as a clause; absent if there is nothing to do. */
  fix?: string;
}

export function ok(check: string, message: string): Finding {
  return { check, level: 'ok', message };
}

export function warning(check: string, message: string, fix: string): Finding {
  return { check, level: 'warning', message, fix };
}

export function problem(check: string, message: string, fix: string): Finding {
  return { check, level: 'problem', message, fix };
}
