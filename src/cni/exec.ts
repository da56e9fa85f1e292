import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import type { Clock } from '../clock.ts';

export interface ExecRequest {
  /** Absolute path of the program; it gets no arguments. */
  path: string;
  /** All of the program's environment. */
  env: Record<string, string>;
  stdin: string;
  /** Ends the program, and what it has started in its process group. */
  signal: AbortSignal;
}

/** How a program ended. */
export interface ExecOutcome {
  /** `null` if a signal ended it. */
  exitCode: number | null;
  /** The signal that ended it, e.g. `SIGKILL`. */
  endedBy: string | null;
  stdout: string;
  /** The end of it, at most {@link maxStderrBytes}. */
  stderr: string;
  /** It wrote more than {@link maxStdoutBytes} and was killed for that. */
  overflowed: boolean;
}

/** Runs a program to its end. Rejects only if it cannot be started, with the error of the operating system. */
export type Exec = (request: ExecRequest) => Promise<ExecOutcome>;

export const maxStdoutBytes = 1 << 20;
export const maxStderrBytes = 4096;
/** For output that is still on its way when the program has ended; what it left running may hold the pipe open. */
const drainMs = 500;
/** For a killed program to end: one that waits for a device cannot be ended, and must not hold us up. */
const killMs = 1000;

/** @param clock for the short waits after the end of a program */
export function createExec(clock: Clock): Exec {
  return (request) => run(request, clock);
}

async function run({ path, env, stdin, signal }: ExecRequest, clock: Clock): Promise<ExecOutcome> {
  // A process group of its own, so that what the plugin starts (IPAM plugins, scripts) can be ended with it.
  const child = spawn(path, [], { env, cwd: '/', stdio: 'pipe', detached: true });
  await once(child, 'spawn');
  const exited = once(child, 'exit');
  const closed = once(child, 'close');
  let overflowed = false;
  const kill = () => killGroup(child.pid);
  const overflow = () => {
    overflowed = true;
    kill();
  };
  const stdout = collectHead(child.stdout, overflow);
  const stderr = collectTail(child.stderr);
  // A plugin may end without reading its configuration: that is no failure of ours.
  child.stdin.on('error', () => undefined);
  child.stdin.end(stdin);

  using killed = onAbort(signal, kill);
  using unended = clock.deadline(Number.MAX_SAFE_INTEGER);
  void unended;
  await Promise.race([exited, killed.promise.then(() => clock.sleep(killMs))]);
  await Promise.race([closed, clock.sleep(drainMs)]);
  child.stdout.destroy();
  child.stderr.destroy();
  return { exitCode: child.exitCode, endedBy: child.signalCode, stdout: stdout(), stderr: stderr(), overflowed };
}
