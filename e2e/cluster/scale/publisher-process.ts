import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { cpuMs, residentMb } from '../../../test/bench/shipped-driver.ts';

/** Publishers of all nodes, ours or upstream's, in a separate process. */
export class PublisherProcess implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: Interface;
  readonly #exit: Promise<unknown>;

  constructor(command: readonly [string, ...string[]]) {
    const [program, ...args] = command;
    this.#child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#exit = once(this.#child, 'exit');
    this.#lines = createInterface(this.#child.stdout);
  }

  /** @param path of a JSON file with the devices of each node */
  async publish(path: string): Promise<void> {
    await this.#call(`publish ${path}`);
  }

  /** Replaces the instances of all nodes one after the other, as in a rolling update. */
  async replace(): Promise<void> {
    await this.#call('replace');
  }

  get cpuMs(): number {
    return cpuMs(this.#pid);
  }

  get residentMb(): number {
    return residentMb(this.#pid);
  }

  async [Symbol.asyncDispose]() {
    this.#child.stdin.end();
    await this.#exit;
  }

  get #pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.#child.spawnfile} was not started`);
    return this.#child.pid;
  }

  async #call(command: string): Promise<void> {
    const answered = once(this.#lines, 'line');
    this.#child.stdin.write(`${command}\n`);
    const ended = this.#exit.then(() => Promise.reject(new Error(`${this.#child.spawnfile} ended at "${command}"`)));
    await Promise.race([answered, ended]);
  }
}
