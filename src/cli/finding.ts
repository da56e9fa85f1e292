import type { Terminal } from './terminal.ts';

type FindingLevel = 'ok' | 'warning' | 'problem';

/** Result of a check. */
export interface Verdict {
  /** Name of the check, if it differs from the name in the list of checks. */
  check?: string;
  /** `problem`: netdra does not work on this node. `warning`: a part does not work, or its state is unknown. */
  level: FindingLevel;
  message: string;
  /** Remedy, as a clause; absent if none is needed. */
  fix?: string;
}

/** A verdict on the node, with the check that reached it. */
export interface Finding extends Verdict {
  /** Name of the check, in a word or two: `IOMMU`. */
  check: string;
}

export function ok(message: string): Verdict {
  return { level: 'ok', message };
}

export function warning(message: string, fix: string): Verdict {
  return { level: 'warning', message, fix };
}

export function problem(message: string, fix: string): Verdict {
  return { level: 'problem', message, fix };
}

export function named(check: string, verdict: Verdict): Verdict {
  return { check, ...verdict };
}

const styles: Record<FindingLevel, 'green' | 'yellow' | 'red'> = { ok: 'green', warning: 'yellow', problem: 'red' };

/** Formats each finding as a line: `problem  NRI: off: there is no socket … → set disable = false …`. */
export function formatFindings(terminal: Terminal, findings: Finding[]): string {
  const lines = findings.map(({ check, level, message, fix }) => {
    const end = fix === undefined ? '' : `; to fix it: ${fix}`;
    return `${terminal.style(styles[level], level.padEnd(7))}  ${terminal.style('bold', check)}: ${message}${end}\n`;
  });
  const count = (wanted: FindingLevel) => findings.filter(({ level }) => level === wanted).length;
  const sum = `${count('problem')} problems, ${count('warning')} warnings\n`;
  return lines.join('') + sum;
}
