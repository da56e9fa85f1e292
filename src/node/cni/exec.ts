import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { onAbort } from '../../lib/abort.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import { errnoCode } from '../../lib/errors.ts';

export interface ExecRequest {
  /** Absolute path of the program. It gets no arguments. */
  path: string;
  /** Whole environment of the program. */
  env: Record<string, string>;
  stdin: string;
  /** Signal that ends the program and its process group. */
  signal: AbortSignal;
}

/** Result of a program. */
export interface ExecOutcome {
  /** Exit code; `null` if a signal ended the program. */
  exitCode: number | null;
  /** Signal that ended the program, e.g. `SIGKILL`. */
  endedBy: string | null;
  stdout: string;
  /** End of the program's standard error, at most {@link maxStderrBytes}. */
  stderr: string;
  /** Whether the program wrote more than {@link maxStdoutBytes} and was killed for that. */
  overflowed: boolean;
}

/** Runs a program to its end. Rejects only if the program cannot be started, with the system's error. */
export type Exec = (request: ExecRequest) => Promise<ExecOutcome>;

export const maxStdoutBytes = 1 << 20;
export const maxStderrBytes = 4096;
/** Time for remaining output after the program has ended, ms: a child process that is still running may hold the pipe open. */
const drainMs = 500;
/** Time for a killed program to end, ms. A program that waits for a device cannot be killed, and must not block the driver. */
const killMs = 1000;

/** Returns a function that runs programs. @param clock clock for the short waits after the end of a program */
export function createExec(clock: Clock): Exec {
  return (request) => run(request, clock);
}

async function run({ path, env, stdin, signal }: ExecRequest, clock: Clock): Promise<ExecOutcome> {
  // The program gets a process group of its own, so that its children (IPAM plugins, scripts) can be killed with it.
  const child = spawn(path, [], { env, cwd: '/', stdio: 'pipe', detached: true });
  await once(child, 'spawn');
  const exited = once(child, 'exit');
  const closed = once(child, 'close');
  const { promise: killed, resolve: onKilled } = Promise.withResolvers<void>();
  const kill = () => {
    killGroup(child.pid!);
    onKilled();
  };
  let overflowed = false;
  const stdout = collectHead(child.stdout, () => {
    overflowed = true;
    kill();
  });
  const stderr = collectTail(child.stderr);
  // A plugin may end without reading its configuration; its exit code shows whether it failed.
  child.stdin.on('error', () => undefined);
  child.stdin.end(stdin);

  using _listener = onAbort(signal, kill);
  await Promise.race([exited, killed]);
  await resolvesWithin(clock, killMs, exited);
  await resolvesWithin(clock, drainMs, closed);
  child.stdout.destroy();
  child.stderr.destroy();
  return { exitCode: child.exitCode, endedBy: child.signalCode, stdout: stdout(), stderr: stderr(), overflowed };
}

/** Collects the first {@link maxStdoutBytes} of a stream. @returns a function that returns the text so far */
function collectHead(stream: Readable, onOverflow: () => void): () => string {
  const chunks: Buffer[] = [];
  let length = 0;
  stream.on('data', (chunk: Buffer) => {
    length += chunk.length;
    if (length <= maxStdoutBytes) chunks.push(chunk);
    else onOverflow();
  });
  return () => Buffer.concat(chunks).toString();
}

/** Collects the last {@link maxStderrBytes} of a stream. @returns a function that returns the text so far */
function collectTail(stream: Readable): () => string {
  let tail = Buffer.alloc(0);
  stream.on('data', (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk]).subarray(-maxStderrBytes);
  });
  return () => tail.toString();
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    // The last process of the group has just ended.
    if (errnoCode(error) !== 'ESRCH') throw error;
  }
}
