import { Option } from 'commander';
import { formatExactJson } from '../framework/metadata/document/json-stream.ts';
import { errnoCode, explain } from '../lib/errors.ts';
import { openTerminal, type Terminal } from './terminal.ts';

export interface OutputOptions {
  output: 'table' | 'json';
}

export function outputOption(): Option {
  return new Option('-o, --output <format>', 'output format').choices(['table', 'json']).default('table');
}

/** Writes the result of a command, for people or for programs. */
export function writeOutput<T>(
  { output }: OutputOptions,
  value: T,
  format: (terminal: Terminal, value: T) => string,
): void {
  const terminal = openTerminal(process.stdout);
  terminal.write(output === 'json' ? `${formatExactJson(value)}\n` : format(terminal, value));
}

/** Runs a command; a failure is reported in one line, with exit code 1. The process ends when its output cannot be written. */
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
  // The reader has seen enough, as in `netdra doctor | head -1`. The exit code stays that of the command.
  if (errnoCode(error) === 'EPIPE') process.exit();
  process.stderr.write(`netdra: the output cannot be written: ${explain(error)}\n`);
  process.exit(1);
}
