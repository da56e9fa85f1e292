import type { Clock } from '../clock.ts';
import type { Logger } from '../logger.ts';

/** One task of each reconciliation round. */
export interface ReconcileTask {
  name: string;
  run(signal: AbortSignal): Promise<void>;
}

export interface ReconcilerOptions {
  tasks: readonly ReconcileTask[];
  everyMs: number;
  clock: Clock;
  logger: Logger;
}

/**
 * Reconciles periodically: checks whether the driver's records, the host, the container runtime and the API server
 * still agree, and repairs what does not. One round at a time; a task that fails does not keep the others from running.
 */
export class Reconciler implements AsyncDisposable {
  readonly #options: ReconcilerOptions;
  readonly #stop = new AbortController();
  #wake = Promise.withResolvers<void>();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** The first round starts after the first pause, or on request. */
  start(): void {
    this.#loop = this.#run();
  }

  /** Requests a round soon, because something has changed. */
  nudge(): void {
    this.#wake.resolve();
  }

  /** One round. Never rejects. */
  async round(signal: AbortSignal): Promise<void> {
    for (const { name, run } of this.#options.tasks) {
      if (signal.aborted) return;
      try {
        await run(signal);
      } catch (error) {
        if (!signal.aborted) this.#options.logger.warn({ err: error, task: name }, 'reconciliation is not complete');
      }
    }
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#pause(signal);
      if (!signal.aborted) await this.round(signal);
    }
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const { clock, everyMs } = this.#options;
    const woken = new AbortController();
    const sleeping = clock.sleep(everyMs, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
    await Promise.race([sleeping, this.#wake.promise]);
    woken.abort();
    this.#wake = Promise.withResolvers<void>();
  }
}
