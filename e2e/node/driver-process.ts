import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { type FlagName, flagNames, flagOf, type Settings } from '../../src/instance/settings.ts';

/** One line of the driver's log. */
export interface LogLine {
  level: number;
  msg: string;
  [field: string]: unknown;
}

/** The driver as users start it: `netdra run` in a separate process. */
export class DriverProcess implements AsyncDisposable {
  readonly log: LogLine[] = [];
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;
  #stderr = '';

  /** @param program the driver's program, for Node.js */
  constructor(settings: Settings, program: string) {
    this.#child = spawn(process.execPath, [program, 'run', ...driverFlags(settings)], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#exit = once(this.#child, 'exit');
    this.#child.stderr?.setEncoding('utf8').on('data', (text) => {
      this.#stderr += text;
    });
    if (this.#child.stdout === null) throw new Error('the driver has no output');
    createInterface(this.#child.stdout).on('line', (line) => this.log.push(JSON.parse(line)));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Its log messages, without the fields. */
  messages(): string[] {
    return this.log.map(({ msg }) => msg);
  }

  get hasExited(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** @returns the exit code; `null` after SIGKILL */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (!this.hasExited) this.#child.kill(signal);
    await this.#exit;
    return this.#child.exitCode;
  }

  /** Its stderr, for a failed test. */
  get stderr(): string {
    return this.#stderr;
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

/** The flags of `netdra run`. */
export function driverFlags(settings: Settings): string[] {
  return flagNames.flatMap((name) => {
    const value = settings[name];
    return value === undefined ? [] : [`${flagOf(name)}=${toText(value)}`];
  });
}

function toText(value: NonNullable<Settings[FlagName]>): string {
  if (typeof value === 'number') return String(value / 1_000);
  return typeof value === 'object' && 'pfs' in value ? `${value.pfs}x${value.vfsPerPf}` : String(value);
}
