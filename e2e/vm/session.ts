import { constants } from 'node:os';
import { NetdraError } from '../../src/errors.ts';
import type { MachineOptions } from './machine.ts';
import { type GuestStreams, VirtualMachine } from './virtual-machine.ts';

/** A machine that did not come up, or went away before its command ended. */
export class MachineError extends NetdraError {}

export interface SessionOptions {
  machine: MachineOptions;
  streams: Omit<GuestStreams, 'onLine'>;
  /** For all of it. */
  timeoutMs: number;
  /** From the start of QEMU until the guest can run a command. */
  bootTimeoutMs: number;
  /** Aborted with the name of a signal as reason: switches the machine off. */
  signal: AbortSignal;
}

/** What `timeout` of coreutils exits with. */
const timeoutExitCode = 124;
const powerOffMs = 15_000;

/**
 * Runs a machine to its end.
 * @returns the command's exit code; 124 if time ran out, 128 and the number of a signal if that ended it
 * @throws MachineError `machine-failed` with the end of the kernel's log
 */
export async function runSession(options: SessionOptions): Promise<number> {
  const { machine: machineOptions, streams, timeoutMs, bootTimeoutMs, signal } = options;
  let exitCode: number | undefined;
  let isReady = false;
  let failure: string | undefined;
  const timers: NodeJS.Timeout[] = [];
  const onLine = (line: string) => {
    if (line === 'ready') isReady = true;
    const [, code] = /^exit (\d+)$/.exec(line) ?? [];
    if (code === undefined) return;
    exitCode = Number(code);
    timers.push(setTimeout(() => machine.kill(), powerOffMs));
  };
  await using machine = await VirtualMachine.start(machineOptions, { ...streams, onLine });
  const end = (code: number) => {
    exitCode ??= code;
    machine.kill();
  };
  const onAbort = () => end(128 + (constants.signals[signal.reason as NodeJS.Signals] ?? 0));
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  timers.push(
    setTimeout(() => {
      if (isReady) return;
      failure = `did not come up within ${bootTimeoutMs / 1_000} s`;
      machine.kill();
    }, bootTimeoutMs),
    setTimeout(() => end(timeoutExitCode), timeoutMs),
  );
  try {
    await machine.whenEnded;
  } finally {
    for (const timer of timers) clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
  if (exitCode !== undefined) return exitCode;
  failure ??= isReady ? 'went away while its command ran' : 'ended before it came up';
  throw new MachineError('machine-failed', `the machine ${failure}; what it said last:\n${machine.report()}`);
}
