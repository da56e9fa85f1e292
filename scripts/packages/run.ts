import { type SpawnSyncOptions, spawnSync } from 'node:child_process';
import { NetdraError } from '../../src/lib/errors.ts';

/** A program that could not be started or exited with a code other than 0. */
export class CommandError extends NetdraError {}

export interface RunOptions {
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  timeoutMs?: number;
  /** Its name in errors, default the program with its arguments. */
  name?: string;
}

/**
 * Runs a program to completion and returns its output.
 * @throws CommandError `command-failed` with the last lines of its stderr
 */
export function run(program: string, args: readonly string[], options: RunOptions = {}): string {
  const spawnOptions: SpawnSyncOptions = { stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 64 << 20 };
  if (options.cwd !== undefined) spawnOptions.cwd = options.cwd;
  if (options.env !== undefined) spawnOptions.env = options.env;
  if (options.timeoutMs !== undefined) spawnOptions.timeout = options.timeoutMs;
  const name = options.name ?? [program, ...args].join(' ');
  const { error, status, signal, stdout, stderr } = spawnSync(program, args, spawnOptions);
  if (error) throw new CommandError('command-failed', `cannot run ${program}`, { cause: error, path: program });
  if (status !== 0) {
    const tail = stderr.toString().trim().split('\n').slice(-5).join('; ');
    const how = status === null ? `was ended by ${signal}` : `exited with ${status}`;
    throw new CommandError('command-failed', `${name} ${how}: ${tail}`, { path: program });
  }
  return stdout.toString();
}
