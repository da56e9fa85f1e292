import { randomUUID } from 'node:crypto';
import { Option } from 'commander';
import { formatExactJson, parseExactJson } from '../framework/metadata/document/json-stream.ts';
import { errnoCode, explain } from '../lib/errors.ts';
import { openTerminal, type Terminal } from './terminal.ts';

export interface OutputOptions {
  output: 'table' | 'json' | 'yaml';
}

/** Returns the option for the output format. @param more formats of this command besides the common ones */
export function outputOption(...more: string[]): Option {
  return new Option('-o, --output <format>', 'output format')
    .choices(['table', 'json', 'yaml', ...more])
    .default('table');
}

/** Returns the option `--problems-only`, for commands that also list healthy objects. */
export function problemsOnlyOption(): Option {
  return new Option('--problems-only', 'print problems only');
}

/** Writes the result of a command, as text for people or in a format for programs. */
export async function writeOutput<T>(
  { output }: OutputOptions,
  value: T,
  format: (terminal: Terminal, value: T) => string,
): Promise<void> {
  const terminal = openTerminal(process.stdout);
  if (output === 'table') return terminal.write(format(terminal, value));
  const json = formatExactJson(value);
  terminal.write(output === 'json' ? `${json}\n` : await formatExactYaml(json));
}

/**
 * Formats JSON as YAML and keeps all digits of its numbers. js-yaml cannot write a `bigint`, so that each is first written as
 * text with a unique mark, which is then removed.
 */
async function formatExactYaml(json: string): Promise<string> {
  const { dump } = await import('js-yaml');
  const mark = `n${randomUUID()}`;
  const exact = (each: unknown): unknown => {
    if (typeof each === 'bigint') return `${mark}${each}`;
    if (Array.isArray(each)) return each.map(exact);
    if (typeof each !== 'object' || each === null) return each;
    return Object.fromEntries(Object.entries(each).map(([key, value]) => [key, exact(value)]));
  };
  return dump(exact(parseExactJson(json)), { lineWidth: -1, noRefs: true }).replaceAll(mark, '');
}

/** Runs a command. Reports a failure in one line, with exit code 1. Ends the process if its output cannot be written. */
export async function runTool(task: () => Promise<void>): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) stream.off('error', endProcess).on('error', endProcess);
  try {
    await task();
  } catch (error) {
    process.stderr.write(`netdra: ${explain(error)}\n`);
    process.exitCode = 1;
  }
}

function endProcess(error: Error): never {
  // The reader has closed the pipe, as in `netdra doctor | head -1`. The command's exit code stays.
  if (errnoCode(error) === 'EPIPE') process.exit();
  process.stderr.write(`netdra: the output cannot be written: ${explain(error)}\n`);
  process.exit(1);
}
