import { stripVTControlCharacters } from 'node:util';

/** One part of `npm test`, when it has ended. */
export interface PartResult {
  name: string;
  /** Of the real programs that took part. */
  versions: string;
  passed: number;
  failed: number;
  skipped: number;
  /** Of each test that failed: its project, file and name, and the first line of the reason. */
  failures: string[];
  seconds: number;
  /** Whether its command ended with 0. Absent: it was not run. */
  succeeded?: boolean;
  /** Why it was not run. */
  reason?: string;
}

type Summary = Pick<PartResult, 'passed' | 'failed' | 'skipped' | 'failures'>;

/**
 * Adds up the tests in the closing lines of all runs of vitest in an output, `Tests  1 failed | 20 passed (21)`, and
 * lists those that failed, ` FAIL  quick  some.test.ts > name`, with the line after it, which says why.
 */
export function readVitestSummary(output: string): Summary {
  const plain = stripVTControlCharacters(output);
  const lines = plain.matchAll(/^ +Tests +(.*\(\d+\))$/gm);
  const failures = [...plain.matchAll(/^ FAIL +(.*)\n(.*)$/gm)].map(
    ([, name = '', why = '']) => `${name.trim()}: ${why}`,
  );
  const texts = [...lines].map(([, text = '']) => text);
  const sum = (word: string) =>
    texts.reduce((total, text) => total + Number(new RegExp(`(\\d+) ${word}`).exec(text)?.[1] ?? 0), 0);
  return { passed: sum('passed'), failed: sum('failed'), skipped: sum('skipped'), failures };
}

/** The table that `npm test` ends with, one line a part. */
export function formatTable(parts: readonly PartResult[]): string {
  const rows = parts.map(({ name, versions, passed, failed, skipped, seconds, succeeded, reason }) => {
    const cases = passed + failed + skipped === 0 ? '' : `${passed}${failed > 0 ? `, ${failed} failed` : ''}`;
    const result = succeeded === undefined ? `not run: ${reason}` : succeeded ? 'passed' : 'FAILED';
    const left = skipped === 0 ? '' : `, ${skipped} skipped`;
    return [name, versions, `${cases}${left}`, succeeded === undefined ? '' : `${Math.round(seconds)} s`, result];
  });
  const all = [['part', 'with', 'cases', 'time', 'result'], ...rows];
  const widths = all[0]!.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  return all
    .map((row) =>
      row
        .map((text, column) => text.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** The tests that failed, one a line, below the name of their part. A log that is cut off keeps its end. */
export function formatFailures(parts: readonly PartResult[]): string {
  return parts
    .filter(({ failures }) => failures.length > 0)
    .map(({ name, failures }) => [`failed in ${name}:`, ...failures.map((each) => `  ${each}`)].join('\n'))
    .join('\n');
}

/** Whether the whole run is a success: what was not run counts only where everything has to be. */
export function isSuccess(parts: readonly PartResult[], everythingHasToRun: boolean): boolean {
  return parts.every(({ succeeded }) => succeeded ?? !everythingHasToRun);
}
