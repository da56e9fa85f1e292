import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeImageFiles } from '../../deploy/image/image-files.ts';
import { type Architecture, architectures, nodeEnv, nodeFlags, programPath } from '../../deploy/image/layout.ts';
import { driverFlags } from '../../e2e/node/driver-process.ts';
import { locateGate } from '../../e2e/node/tools.ts';
import type { Settings } from '../../src/instance/settings.ts';

/** Creates the content of the image. @param dir becomes the image's `/` */
export async function makeShippedDriver(dir: string): Promise<void> {
  const names = Object.keys(architectures) as Architecture[];
  const architecture = names.find((name) => architectures[name] === process.arch);
  if (architecture === undefined) throw new Error(`there is no image for ${process.arch}`);
  await makeImageFiles({ outDir: dir, architecture, gateProgram: locateGate() });
}

export interface ShippedDriverOptions {
  logPath: string;
  /** Added to our environment. */
  env?: Record<string, string>;
  /** A module that is loaded before the driver, with a channel to this process. */
  preload?: string | undefined;
  /** Options of Node.js. Default: those of our image. */
  engine?: readonly string[] | undefined;
}

/** The driver as started by the image, in a separate process. Its log goes to a file that no process has to read. */
export class ShippedDriver implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;

  constructor(
    imageDir: string,
    settings: Settings,
    { logPath, env = {}, preload, engine = nodeFlags }: ShippedDriverOptions,
  ) {
    const log = openSync(logPath, 'a');
    const flags = preload === undefined ? engine : [...engine, `--import=${preload}`];
    this.#child = spawn(process.execPath, [...flags, join(imageDir, programPath), 'run', ...driverFlags(settings)], {
      stdio: ['ignore', log, log, ...(preload === undefined ? [] : ['ipc' as const])],
      env: { ...process.env, ...nodeEnv(imageDir), ...env },
    });
    closeSync(log);
    this.#exit = once(this.#child, 'exit');
  }

  /** Asks the preloaded module, which has one answer. */
  async ask<T>(): Promise<T> {
    const answer = once(this.#child, 'message');
    this.#child.send('');
    return (await answer)[0] as T;
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the driver was not started');
    return this.#child.pid;
  }

  async [Symbol.asyncDispose]() {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill();
    await this.#exit;
  }
}

/** Resident memory of a process, MB (10⁶ bytes). */
export function residentMb(pid: number): number {
  const kilobytes = Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  return (kilobytes * 1_024) / 1e6;
}

/** CPU time used by a process so far, ms. */
export function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  const ticksPerSecond = Number(execFileSync('getconf', ['CLK_TCK']).toString());
  return ((Number(fields[11]) + Number(fields[12])) * 1_000) / ticksPerSecond;
}

/** How often the main thread of a process has waited for something so far. */
export function wakeUps(pid: number): number {
  return Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}
