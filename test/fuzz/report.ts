import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Finding {
  message: string;
  /** Absent if the message contains all that is needed to reproduce it. */
  input?: Uint8Array;
}

/** The result of fuzzing a target. */
export interface Report {
  /** Number of inputs run; absent if the process did not finish. */
  inputs: number | undefined;
  findings: Finding[];
  /** Why it was not run. */
  leftOut?: string;
}

/** A row of the table. */
export interface TargetReport extends Report {
  target: string;
  seconds: number;
}

/** Maximum length of an input that is printed, not only written to a file. */
const maxPrintedBytes = 400;

/** The table at the end of a run, with its sums. */
export function formatReports(reports: readonly TargetReport[]): string {
  const done = reports.filter(({ leftOut }) => leftOut === undefined);
  const sum = (read: (report: TargetReport) => number) => done.reduce((total, report) => total + read(report), 0);
  const row = (target: string, inputs: number | undefined, findings: number, seconds: number) => [
    target,
    inputs?.toLocaleString('en') ?? '?',
    String(findings),
    seconds.toFixed(0),
  ];
  const rows = [
    ['target', 'inputs', 'crashes/disagreements', 'seconds'],
    ...done.map(({ target, inputs, findings, seconds }) => row(target, inputs, findings.length, seconds)),
    row(
      'all',
      sum(({ inputs = 0 }) => inputs),
      sum(({ findings }) => findings.length),
      sum(({ seconds }) => seconds),
    ),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((cells) => cells[column]!.length)));
  return rows
    .map(([target = '', ...cells]) =>
      [target.padEnd(widths[0]!), ...cells.map((cell, index) => cell.padStart(widths[index + 1]!))].join('  '),
    )
    .join('\n');
}

/**
 * A finding for the log. Its input is written to a file in `dir`.
 * @returns the message and how to run the input again; short inputs are included, so that the log of a CI run suffices
 */
export function describeFinding(target: string, { message, input }: Finding, dir: string): string {
  if (input === undefined) return `${target}: ${message}`;
  const name = createHash('sha256').update(input).digest('hex').slice(0, 10);
  const path = join(dir, `${target}-${name}`);
  mkdirSync(dir, { recursive: true });
  writeFileSync(path, input);
  const base64 = input.length > maxPrintedBytes ? '' : `, base64 ${Buffer.from(input).toString('base64')}`;
  return `${target}: ${message}\ninput: ${path}${base64}\nas test/fuzz/corpus/${target}/${name} the unit tests run it`;
}
