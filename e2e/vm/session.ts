import { constants } from 'node:os';
import { NetdraError } from '../../src/lib/errors.ts';
import type { MachineOptions } from './machine.ts';
import { type GuestStreams, VirtualMachine } from './virtual-machine.ts';

/** A machine that did not boot, or ended before its command. */
export class MachineError extends NetdraError {}

export interface SessionOptions {
  machine: MachineOptions;
  streams: Omit<GuestStreams, 'onLine'>;
  /** For the whole session. */
  timeoutMs: number;
  /** From the start of QEMU until the guest can run a command. */
  bootTimeoutMs: number;
  /** Number of boot attempts; a failed one is safe to repeat, since nothing was run in the machine yet. */
  bootAttempts: number;
  /** Aborted with the name of a signal as reason: switches the machine off. */
  signal: AbortSignal;
  log: (line: string) => void;
}

/** Limits of a session. A boot takes 20 to 40 s, and over two minutes where others use the processors. */
export const sessionLimits = { bootTimeoutMs: 300_000, bootAttempts: 3, timeoutMs: 1_800_000 };

/** The kernel prints it when it waits for a timer interrupt that the emulator has lost, and boots on only in rare cases. */
const lostInterrupt = 'Possible timer handling issue';
const recoveryMs = 15_000;

/** Exit code of `timeout` in coreutils. */
const timeoutExitCode = 124;
const powerOffMs = 15_000;

/**
 * Runs a machine until it ends.
 * @returns the command's exit code; 124 if time ran out, 128 and the number of a signal if that ended it
 * @throws MachineError `machine-failed` with the end of the kernel's log
 */
export async function runSession(options: SessionOptions): Promise<number> {
  const { bootAttempts, timeoutMs, log } = options;
  const endsAt = performance.now() + timeoutMs;
  for (let attempt = 1; ; attempt++) {
    const isLast = attempt >= bootAttempts;
    const outcome = await runMachine(options, endsAt - performance.now(), isLast);
    if (outcome.exitCode !== undefined) return outcome.exitCode;
    const { failure = 'ended', report } = outcome;
    if (outcome.wasReady || isLast) {
      throw new MachineError('machine-failed', `the machine ${failure}; what it said last:\n${report}`);
    }
    log(`the machine ${failure}: starting it again; what it said last:\n${report}`);
  }
}

interface Outcome {
  exitCode: number | undefined;
  wasReady: boolean;
  failure: string | undefined;
  report: string;
}

/** @param isLast with no boot attempt after this one: it gets all its time, whatever the kernel says */
async function runMachine(options: SessionOptions, timeoutMs: number, isLast: boolean): Promise<Outcome> {
  const { machine: machineOptions, streams, bootTimeoutMs, signal } = options;
  const timers = new DisposableStack();
  using _timers = timers;
  const after = (ms: number, task: () => void) => timers.adopt(setTimeout(task, ms), clearTimeout);
  const every = (ms: number, task: () => void) => timers.adopt(setInterval(task, ms), clearInterval);
  let [exitCode, wasReady, failure]: [number | undefined, boolean, string | undefined] = [undefined, false, undefined];
  await using machine = await VirtualMachine.start(machineOptions, {
    ...streams,
    onLine: (line) => {
      if (line === 'ready') wasReady = true;
      const [, code] = /^exit (\d+)$/.exec(line) ?? [];
      if (code === undefined) return;
      exitCode ??= Number(code);
      after(powerOffMs, () => machine.kill());
    },
  });
  const end = (code: number) => {
    exitCode ??= code;
    machine.kill();
  };
  const onAbort = () => end(128 + (constants.signals[signal.reason as NodeJS.Signals] ?? 0));
  signal.addEventListener('abort', onAbort);
  timers.defer(() => signal.removeEventListener('abort', onAbort));
  if (signal.aborted) onAbort();
  after(timeoutMs, () => end(timeoutExitCode));
  const giveUp = (why: string) => {
    if (wasReady) return;
    failure ??= why;
    machine.kill();
  };
  after(bootTimeoutMs, () => giveUp(`did not come up within ${bootTimeoutMs / 1_000} s`));
  every(5_000, () => {
    if (wasReady || isLast || !machine.kernelLog().includes(lostInterrupt)) return;
    after(recoveryMs, () => giveUp('waits for a timer interrupt that was lost'));
  });
  await machine.whenEnded;
  failure ??= wasReady ? 'went away while its command ran' : 'ended before it came up';
  return { exitCode, wasReady, failure, report: machine.report() };
}
