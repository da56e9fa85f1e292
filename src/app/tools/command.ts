import { join } from 'node:path';
import { Command, Option } from 'commander';
import { explain } from '../../lib/errors.ts';
import { type FlagName, flagOption, type Settings } from '../settings.ts';
import { formatJson, openTerminal, type Terminal } from './terminal.ts';

export interface OutputOptions {
  output: 'table' | 'json';
}

/** What the action of a tool gets: the output format, and flags of `netdra run`. */
export type ToolOptions<Name extends FlagName> = OutputOptions & Pick<Settings, Name>;

/** A read-only command with some of the flags of `netdra run`. */
export function toolCommand(name: string, description: string, flags: readonly FlagName[]): Command {
  const command = new Command(name)
    .description(description)
    .showHelpAfterError(`(netdra ${name} --help lists the flags)`)
    .addOption(new Option('-o, --output <format>', 'output format').choices(['table', 'json']).default('table'));
  for (const flag of flags) command.addOption(flagOption(flag));
  return command;
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

/** The driver's directory below the kubelet's `plugins`, and its state directory. */
export function driverDirs({
  driverName,
  kubeletPluginsDir,
  stateDir,
}: Pick<Settings, 'driverName' | 'kubeletPluginsDir' | 'stateDir'>) {
  const dataDir = join(kubeletPluginsDir, driverName);
  return { dataDir, stateDir: stateDir ?? dataDir };
}
