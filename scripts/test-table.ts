import { stripVTControlCharacters } from 'node:util';

/** The result of one part of `npm test`. */
export interface PartResult {
  name: string;
  /** Versions of the real programs involved. */
  versions: string;
  passed: number;
  failed: number;
  skipped: number;
  /** For each failed test: its project, file and name, and the reason. */
  failures: string[];
  seconds: number;
  /** Whether its command exited with 0. Absent: it was not run. */
  succeeded?: boolean;
  /** Why it was not run. */
  reason?: string;
}

type Summary = Pick<PartResult, 'passed' | 'failed' | 'skipped' | 'failures'>;

/**
 * Adds up the tests in the closing lines of all vitest runs in an output, `Tests  1 failed | 20 passed (21)`, and
 * lists the failed ones, ` FAIL  quick  some.test.ts > name`, with the lines of the reason. Tests that failed for the same
 * reason stand together before it.
 */
export function readVitestSummary(output: string): Summary {
  const plain = stripVTControlCharacters(output);
  const lines = plain.matchAll(/^ +Tests +(.*\(\d+\))$/gm);
  const failures = [...plain.matchAll(/((?:^ FAIL +.*\n)+)((?:(?! *❯ ).+\n){1,25})/gm)].map(
    ([, names = '', why = '']) => `${names.replaceAll(/^ FAIL +/gm, '')}${why}`.trimEnd().replaceAll('\n', '\n    '),
  );
  const texts = [...lines].map(([, text = '']) => text);
  const sum = (word: string) =>
    texts.reduce((total, text) => total + Number(new RegExp(`(\\d+) ${word}`).exec(text)?.[1] ?? 0), 0);
  return { passed: sum('passed'), failed: sum('failed'), skipped: sum('skipped'), failures };
}

/** The table at the end of `npm test`, one line per part. */
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

/** The failed tests and their reasons, below the name of their part. A truncated log keeps its end. */
export function formatFailures(parts: readonly PartResult[]): string {
  return parts
    .filter(({ failures }) => failures.length > 0)
    .map(({ name, failures }) => [`failed in ${name}:`, ...failures.map((each) => `  ${each}`)].join('\n'))
    .join('\n');
}

/** Whether the whole run succeeded: a part that was not run counts as failed only if everything has to run. */
export function isSuccess(parts: readonly PartResult[], everythingHasToRun: boolean): boolean {
  return parts.every(({ succeeded }) => succeeded ?? !everythingHasToRun);
}
