import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { NodeError } from './errors.ts';

export interface ProgramOptions {
  program: string;
  args: readonly string[];
  logPath: string;
  env?: NodeJS.ProcessEnv;
  /** Resolves to `true` once the program serves. Errors count as "not yet". */
  isReady: () => Promise<boolean>;
  /** Time for the program to start serving, default 60 s. */
  timeoutMs?: number;
}

const pollMs = 50;
const stopTimeoutMs = 10_000;

/** A daemon that tests start, kill and restart. Its output goes to a log file. */
export class Program implements AsyncDisposable {
  #options: ProgramOptions;
  #child: ChildProcess | undefined;

  /** It is not started yet. */
  constructor(options: ProgramOptions) {
    this.#options = options;
  }

  /** Starts the program and waits until it serves. @throws NodeError `program-ended`, `not-ready` */
  static async start(options: ProgramOptions): Promise<Program> {
    await using stack = new AsyncDisposableStack();
    const program = stack.use(new Program(options));
    await program.start();
    stack.move();
    return program;
  }

  get name(): string {
    return basename(this.#options.program);
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** @throws NodeError `program-ended` if it is not running */
  get pid(): number {
    if (this.#child?.pid === undefined || !this.isRunning) throw this.#failure('program-ended', 'does not run');
    return this.#child.pid;
  }

  /** Starts the program unless it is running. @throws NodeError `program-ended`, `not-ready` */
  async start(): Promise<void> {
    if (this.isRunning) return;
    this.#spawn();
    const { isReady, timeoutMs = 60_000 } = this.#options;
    for (const endsAt = performance.now() + timeoutMs; ; await sleep(pollMs)) {
      if (!this.isRunning) {
        const how = this.#child?.exitCode ?? this.#child?.signalCode;
        throw this.#failure('program-ended', `ended with ${how} while it was started`);
      }
      if (await isReady().catch(() => false)) return;
      if (performance.now() > endsAt) throw this.#failure('not-ready', `does not serve after ${timeoutMs / 1_000} s`);
    }
  }

  #spawn(): void {
    const { program, args, logPath, env } = this.#options;
    const log = openSync(logPath, 'a');
    try {
      this.#child = spawn(program, args, {
        stdio: ['ignore', log, log],
        // Memory is plentiful; the processors are the bottleneck of a test run.
        env: { GOGC: '400', ...(env ?? process.env) },
      });
      // `start` reports it as ended; an error event without a listener would end the suite.
      this.#child.on('error', () => undefined);
    } finally {
      closeSync(log);
    }
  }

  /** The last lines of its log. */
  logTail(lines = 15): string {
    const { logPath } = this.#options;
    return existsSync(logPath) ? readFileSync(logPath, 'utf8').trimEnd().split('\n').slice(-lines).join('\n') : '';
  }

  /** Stops the program and waits for its end. Sends SIGKILL after 10 s. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined || !this.isRunning) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
    await exited;
    clearTimeout(timer);
  }

  /** `stop` and `start`. @throws NodeError `program-ended`, `not-ready` */
  async restart(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    await this.stop(signal);
    await this.start();
  }

  /** Goes on with another program, as after an update of its package. @throws NodeError `program-ended`, `not-ready` */
  async replaceBy(change: Partial<ProgramOptions>): Promise<void> {
    await this.stop();
    this.#options = { ...this.#options, ...change };
    await this.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop('SIGKILL');
  }

  #failure(code: 'program-ended' | 'not-ready', what: string): NodeError {
    const { logPath } = this.#options;
    return new NodeError(code, `${this.name} ${what}; its log ends\n${this.logTail()}`, { path: logPath });
  }
}
