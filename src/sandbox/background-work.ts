import type { PodSandbox } from '../../nri/index.ts';
import type { Logger } from '../logger.ts';

/** Work for sandboxes that goes on after their hooks were answered: at most one piece for each key. */
export class BackgroundWork implements AsyncDisposable {
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, { sandboxId: string; abort: AbortController; done: Promise<void> }>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** How many pieces are under way. */
  get size(): number {
    return this.#running.size;
  }

  /**
   * Does nothing if work with the key is under way already, or we are stopping.
   * @param abort ended when the work is to end; given by who began it before
   */
  start(
    pod: PodSandbox,
    key: string,
    task: (signal: AbortSignal) => Promise<void>,
    abort: AbortController = new AbortController(),
  ): void {
    if (this.#stop.signal.aborted) abort.abort(this.#stop.signal.reason);
    if (abort.signal.aborted || this.#running.has(key)) return;
    const done = task(abort.signal)
      .catch((error) => {
        if (abort.signal.aborted) return;
        this.#logger.error({ pod: `${pod.namespace}/${pod.name}`, err: error }, 'work after the hook failed');
      })
      .finally(() => this.#running.delete(key));
    this.#running.set(key, { sandboxId: pod.id, abort, done });
  }

  /** Ends what is under way for a sandbox. */
  stop(sandboxId: string): void {
    for (const work of this.#running.values()) if (work.sandboxId === sandboxId) work.abort.abort();
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    const running = [...this.#running.values()];
    for (const { abort } of running) abort.abort(this.#stop.signal.reason);
    await Promise.all(running.map(({ done }) => done));
  }
}
