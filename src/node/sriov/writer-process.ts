import { type ChildProcess, spawn } from 'node:child_process';

export interface WriterProcessOptions {
  /** Ends the process while writes hang in it. Default: SIGKILL, which takes effect when the kernel returns from the writes. */
  end?: (process: ChildProcess) => void;
  /** Called when the process has ended. */
  onExit: () => void;
}

/** Result of a write. */
export interface WriteResult {
  error?: { code?: string; message: string };
}

export interface RunningWrite {
  /** Result of the write. Also resolves, with an error, if the process ends first. */
  result: Promise<WriteResult>;
  /** Records that the write hangs: the process gets no more writes, and is ended when only hung writes are left in it. */
  abandon(): void;
}

/** Time after which a process without writes ends, ms. */
const idleMs = 30_000;
/**
 * Maximum number of concurrent writes in a process. No write waits for another one, which may hang. A thread without a write
 * takes some kilobytes.
 */
const threads = 64;
/** ID of the message that reports readiness. */
const readyId = 0;

/**
 * Program of the process. It is passed on the command line, so that the image needs no file for it. It opens files only for
 * writing and never creates any: the kernel lets no process read `unbind`, not even as root.
 */
const program = `
const { constants, writeFile } = require('node:fs');
process.on('message', ({ id, path, text }) => {
  writeFile(path, text, { flag: constants.O_WRONLY }, (cause) => {
    process.send({ id, error: cause === null ? undefined : { code: cause.code, message: cause.message } });
  });
});
process.on('disconnect', () => process.exit());
process.send({ id: ${readyId} });`;

/** A process that writes files for the driver, each in a thread of its own that may hang in the kernel. */
export class WriterProcess implements Disposable {
  readonly #child: ChildProcess;
  readonly #options: WriterProcessOptions;
  /** Callbacks of writes that have not ended, by ID. */
  readonly #running = new Map<number, (result: WriteResult) => void>();
  readonly #abandoned = new Set<number>();
  #isOpen = true;
  #lastId = readyId;
  #idle: NodeJS.Timeout | undefined;
  /**
   * Resolves when the process runs; rejects if it does not start. The start does not count towards the time limit of a write:
   * it may take long on a busy machine, which is no fault of the device.
   */
  readonly ready: Promise<void>;

  constructor(options: WriterProcessOptions) {
    this.#options = options;
    this.#child = spawn(process.execPath, ['--jitless', '--max-semi-space-size=1', '-e', program], {
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      env: { UV_THREADPOOL_SIZE: String(threads) },
    });
    // The process must not keep the driver from ending.
    this.#child.unref();
    this.#child.on('message', ({ id, ...result }: WriteResult & { id: number }) => this.#ended(id, result));
    this.#child.once('exit', () => this.#gone('it has ended'));
    this.#child.once('error', (cause) => this.#gone(cause.message));
    this.ready = this.#expect(readyId).then(({ error }) => {
      if (error !== undefined) throw new Error(error.message);
    });
  }

  get takesMore(): boolean {
    return this.#isOpen && this.#running.size < threads;
  }

  write(path: string, text: string): RunningWrite {
    clearTimeout(this.#idle);
    this.#lastId += 1;
    const id = this.#lastId;
    const result = this.#expect(id);
    this.#child.send({ id, path, text }, (error) => error && this.#gone(error.message));
    return { result, abandon: () => this.#abandon(id) };
  }

  [Symbol.dispose](): void {
    this.#close();
    this.#child.kill('SIGKILL');
  }

  #expect(id: number): Promise<WriteResult> {
    this.#child.channel?.ref();
    return new Promise((resolve) => this.#running.set(id, resolve));
  }

  #ended(id: number, result: WriteResult): void {
    this.#running.get(id)?.(result);
    this.#running.delete(id);
    this.#abandoned.delete(id);
    this.#endIfAbandoned();
    if (this.#running.size > 0) return;
    this.#child.channel?.unref();
    if (this.#isOpen) this.#idle = setTimeout(() => this[Symbol.dispose](), idleMs).unref();
  }

  #abandon(id: number): void {
    this.#close();
    if (this.#running.has(id)) this.#abandoned.add(id);
    this.#endIfAbandoned();
  }

  #endIfAbandoned(): void {
    if (this.#isOpen || this.#running.size > this.#abandoned.size) return;
    const { end = (child: ChildProcess) => void child.kill('SIGKILL') } = this.#options;
    end(this.#child);
  }

  #gone(why: string): void {
    this.#close();
    const message = `cannot use the process that writes to sysfs: ${why}`;
    for (const id of [...this.#running.keys()]) this.#ended(id, { error: { message } });
    this.#options.onExit();
  }

  #close(): void {
    this.#isOpen = false;
    clearTimeout(this.#idle);
  }
}
