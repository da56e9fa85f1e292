import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import type { MachineOptions } from './machine.ts';
import { type GuestNetwork, guestRunDir, writeRunFiles } from './run-files.ts';
import { MachineError, runSession, sessionLimits } from './session.ts';

export interface GuestOptions {
  machine: MachineOptions;
  /** Absent: the guest's management interface is not connected. */
  network?: GuestNetwork;
  log: (line: string) => void;
}

/** For commands in the guest, where everything is far slower. */
const commandTimeoutMs = 300_000;
const folder = 'commands';

/** Reads names of scripts, runs each in the background, and prints its name and exit code when it has ended. */
const serveCommands = `echo serving
while read -r name; do
  { bash "$1/$name" >"$1/$name.out" 2>&1 </dev/null; echo "$name $?"; } &
done`;

/** A running machine that receives commands one by one from an outside process. Disposing switches it off. */
export class Guest implements AsyncDisposable {
  readonly runDir: string;
  readonly #input: PassThrough;
  readonly #off = new AbortController();
  readonly #pending = new Map<string, (exitCode: number) => void>();
  /** Rejects when the machine ends. */
  readonly #ended: Promise<never>;
  #count = 0;

  private constructor({ machine, network, log }: GuestOptions, onServing: () => void) {
    this.runDir = machine.runDir;
    this.#input = new PassThrough();
    mkdirSync(join(this.runDir, folder));
    const { repository } = machine;
    const command = ['bash', '-c', serveCommands, 'serve-commands', join(guestRunDir, folder)];
    const task = { repository, command, terminal: false, input: true, rows: 24, columns: 80, env: {} };
    writeRunFiles(this.runDir, network === undefined ? task : { ...task, network });
    const stdout = new PassThrough();
    createInterface(stdout).on('line', (line) => {
      const [name = '', exitCode] = line.split(' ');
      if (exitCode === undefined) onServing();
      else this.#pending.get(name)?.(Number(exitCode));
    });
    const streams = { stdin: this.#input, stdout, stderr: process.stderr };
    const session = runSession({ ...sessionLimits, machine, streams, log, signal: this.#off.signal });
    this.#ended = session.then((exitCode) => {
      throw new MachineError('machine-failed', `the machine has ended with exit code ${exitCode}`);
    });
    this.#ended.catch(() => undefined);
  }

  /** Boots the machine and waits until it accepts commands. @throws MachineError */
  static async start(options: GuestOptions): Promise<Guest> {
    const { promise: serving, resolve } = Promise.withResolvers<void>();
    const guest = new Guest(options, resolve);
    await Promise.race([serving, guest.#ended]);
    return guest;
  }

  /**
   * Runs a bash script as root. Background processes keep running if they redirect their output.
   * @returns its output, stdout and stderr
   * @throws MachineError `command-failed` with its output, unless its exit code is 0; `machine-failed`
   */
  async run(script: string): Promise<string> {
    const name = String(this.#count++);
    const path = join(this.runDir, folder, name);
    writeFileSync(path, `set -euo pipefail\n${script}\n`);
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const fail = (why: string) => new MachineError('command-failed', `${why} in the guest:\n${script}`, { path });
    const timer = setTimeout(() => reject(fail(`no end within ${commandTimeoutMs / 1_000} s`)), commandTimeoutMs);
    this.#pending.set(name, resolve);
    this.#input.write(`${name}\n`);
    const exitCode = await Promise.race([promise, this.#ended]).finally(() => {
      clearTimeout(timer);
      this.#pending.delete(name);
    });
    const output = readFileSync(`${path}.out`, 'utf8');
    if (exitCode !== 0) throw fail(`exit code ${exitCode}, ${JSON.stringify(output)}`);
    return output;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#off.abort('SIGTERM');
    await this.#ended.catch((error) => {
      if (!(error instanceof MachineError)) throw error;
    });
  }
}
