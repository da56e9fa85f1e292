import { stripVTControlCharacters } from 'node:util';
import type { FailedCase } from './part.ts';

/** The result of one part. */
export interface PartResult {
  name: string;
  versions: string;
  passed: number;
  failed: number;
  skipped: number;
  seconds: number;
  outcome: 'passed' | 'failed' | 'not run';
  /** Why the part did not run. */
  reason?: string;
  failures: Failure[];
  /** Whether something outside of the cases failed, such as a promise that nobody awaited. */
  hasOtherErrors: boolean;
  /** Cases that the part itself skipped, with their reasons. */
  skippedCases: string[];
  /** Cases that failed at first and passed when they ran again alone. */
  secondAttempts: FailedCase[];
}

/** A failed case, or several that failed for the same reason. */
export interface Failure {
  cases: FailedCase[];
  /** The reason, possibly of several lines. */
  reason: string;
}

export type Summary = Pick<
  PartResult,
  'passed' | 'failed' | 'skipped' | 'failures' | 'hasOtherErrors' | 'skippedCases'
>;

/**
 * Adds up the cases in the closing lines of all vitest runs in an output, `Tests  1 failed | 20 passed (21)`. The failed
 * ones have lines ` FAIL  project  file.test.ts > suite > case`, those with one reason together before it; skipped ones
 * have `↓ file.test.ts > suite > case [reason]` in the verbose reporter's output. Errors outside of cases are counted in
 * `Errors  1 error`.
 */
export function readVitestSummary(output: string): Summary {
  const plain = stripVTControlCharacters(output);
  const texts = [...plain.matchAll(/^ +Tests +(.*\(\d+\))$/gm)].map(([, text = '']) => text);
  const sum = (word: string) =>
    texts.reduce((total, text) => total + Number(new RegExp(`(\\d+) ${word}`).exec(text)?.[1] ?? 0), 0);
  return {
    passed: sum('passed'),
    failed: sum('failed'),
    skipped: sum('skipped'),
    failures: readFailures(plain),
    hasOtherErrors: /^ +Errors +\d+ error/m.test(plain),
    skippedCases: [...plain.matchAll(/^ +↓ (?:\S+ {2})?(.+\.test\.ts > .+)$/gm)].map(([, name = '']) => name),
  };
}

/** Whether a vitest run has ended in an output. */
export function isVitestOutput(output: string): boolean {
  return /^ +Tests +/m.test(stripVTControlCharacters(output));
}

function readFailures(plain: string): Failure[] {
  const blocks = plain.matchAll(/((?:^ FAIL +.*\n)+)((?:(?! *❯ ).+\n){1,25})/gm);
  return [...blocks].map(([, names = '', reason = '']) => ({
    cases: [...names.matchAll(/^ FAIL +(?:\S+ {2})?(.+)$/gm)].map(([, name = '']) => parseCase(name)),
    reason: reason.trimEnd(),
  }));
}

/** @param name `some.test.ts > suite > case`, or `some.test.ts [ some.test.ts ]` for a file that could not be loaded */
function parseCase(name: string): FailedCase {
  const [file = '', ...titles] = name.replace(/ \[ .* \]$/, '').split(' > ');
  return { file, titles };
}

/** Returns a pattern for vitest's `-t` that selects only these cases: vitest matches their titles, joined by ` > `. */
export function selectCases(cases: readonly FailedCase[]): string {
  const escaped = cases.map(({ titles }) => titles.join(' > ').replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&'));
  return `^(${escaped.join('|')})`;
}

export function describeCase({ file, titles }: FailedCase): string {
  return [file, ...titles].join(' > ');
}

/** Formats the closing table, one line per part. */
export function formatTable(parts: readonly PartResult[]): string {
  const rows = parts.map((part) => {
    const { name, versions, outcome } = part;
    return [name, versions, formatCases(part), outcome === 'not run' ? '' : formatSeconds(part), formatOutcome(part)];
  });
  const all = [['part', 'with', 'cases', 'time', 'result'], ...rows];
  const widths = all[0]!.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  const formatRow = (row: readonly string[]) => row.map((text, column) => text.padEnd(widths[column]!)).join('  ');
  return all.map((row) => formatRow(row).trimEnd()).join('\n');
}

function formatSeconds({ seconds }: PartResult): string {
  return `${Math.round(seconds)} s`;
}

function formatCases({ outcome, passed, failed, skipped }: PartResult): string {
  if (outcome === 'not run') return '';
  const counts = [`${passed}`];
  if (failed > 0) counts.push(`${failed} failed`);
  if (skipped > 0) counts.push(`${skipped} skipped`);
  return counts.join(', ');
}

function formatOutcome({ outcome, reason, secondAttempts }: PartResult): string {
  if (outcome === 'not run') return `skipped: ${reason}`;
  if (outcome === 'failed') return 'FAILED';
  return secondAttempts.length === 0 ? 'passed' : `passed, ${secondAttempts.length} at the second attempt`;
}

/** Formats, by part, the failed cases with their reasons, the skipped cases, and the cases that passed at the second attempt. */
export function formatDetails(parts: readonly PartResult[]): string {
  const sections = parts.flatMap(({ name, failures, skippedCases, secondAttempts }) => [
    formatSection(`failed in ${name}:`, failures.map(formatFailure)),
    formatSection(`passed at the second attempt in ${name}:`, secondAttempts.map(describeCase)),
    formatSection(`skipped in ${name}:`, skippedCases),
  ]);
  return sections.filter((section) => section !== '').join('\n');
}

function formatSection(heading: string, lines: readonly string[]): string {
  return lines.length === 0 ? '' : [heading, ...lines.map((line) => `  ${line}`)].join('\n');
}

function formatFailure({ cases, reason }: Failure): string {
  return `${cases.map(describeCase).join('\n  ')}\n${reason}`.replaceAll('\n', '\n    ');
}

/** Formats the last line: `20 passed, 1 failed, 2 skipped`. A part that did not run counts as one skipped case. */
export function formatTotal(parts: readonly PartResult[]): string {
  const total = (key: 'passed' | 'failed' | 'skipped') => parts.reduce((sum, part) => sum + part[key], 0);
  const notRun = parts.filter(({ outcome }) => outcome === 'not run').length;
  return `${total('passed')} passed, ${total('failed')} failed, ${total('skipped') + notRun} skipped`;
}
