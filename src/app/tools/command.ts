import { join } from 'node:path';
import { explain } from '../../lib/errors.ts';
import { formatJson, openTerminal, type Terminal } from './terminal.ts';

export interface OutputOptions {
  output: 'table' | 'json';
}

/** Writes the result of a command, for people or for programs. */
export function writeOutput<T>({ output }: OutputOptions, value: T, format: (terminal: Terminal, value: T) => string) {
  const terminal = openTerminal(process.stdout);
  terminal.write(output === 'json' ? formatJson(value) : format(terminal, value));
}

/** Runs a command; a failure is reported in one line, with exit code 1. */
export async function runTool(task: () => Promise<void>): Promise<void> {
  try {
    await task();
  } catch (error) {
    process.stderr.write(`netdra: ${explain(error)}\n`);
    process.exitCode = 1;
  }
}

export interface DirOptions {
  driverName: string;
  kubeletPluginsDir: string;
  stateDir?: string;
}

/** The driver's directory below the kubelet's `plugins`, and its state directory. */
export function driverDirs({ driverName, kubeletPluginsDir, stateDir }: DirOptions) {
  const dataDir = join(kubeletPluginsDir, driverName);
  return { dataDir, stateDir: stateDir ?? dataDir };
}
