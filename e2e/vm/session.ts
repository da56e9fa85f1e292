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
    const outcome = await runMachine(options, endsAt - performance.now());
    if (outcome.exitCode !== undefined) return outcome.exitCode;
    const { failure = 'ended', report } = outcome;
    if (outcome.wasReady || attempt >= bootAttempts) {
      throw new MachineError('machine-failed', `the machine ${failure}; what it said last:\n${report}`);
    }
    // With emulated processors about one boot in fifty hangs: a timer interrupt gets lost.
    log(`the machine ${failure}: starting it again; what it said last:\n${report}`);
  }
}

interface Outcome {
  exitCode: number | undefined;
  wasReady: boolean;
  failure: string | undefined;
  report: string;
}

async function runMachine(options: SessionOptions, timeoutMs: number): Promise<Outcome> {
  const { machine: machineOptions, streams, bootTimeoutMs, signal } = options;
  const timers = new DisposableStack();
  using _timers = timers;
  const after = (ms: number, task: () => void) => timers.adopt(setTimeout(task, ms), clearTimeout);
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
  after(bootTimeoutMs, () => {
    if (wasReady) return;
    failure = `did not come up within ${bootTimeoutMs / 1_000} s`;
    machine.kill();
  });
  await machine.whenEnded;
  failure ??= wasReady ? 'went away while its command ran' : 'ended before it came up';
  return { exitCode, wasReady, failure, report: machine.report() };
}
