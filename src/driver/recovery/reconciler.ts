import { AsyncLocalStorage } from 'node:async_hooks';
import { Background } from '../../lib/background.ts';
import { pauseMs } from '../../lib/backoff.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { pauses, periods } from '../../lib/waiting-times.ts';

/** How long a round waits for one task, ms. Tasks can wait for a lock that other work on a claim holds for a minute. */
const taskMs = 5_000;

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
 * Reconciles periodically: checks whether the driver's records, the host, the container runtime and the API server agree, and
 * repairs differences. Runs one round at a time. Neither a failed nor a slow task stops a round: after a while, the round
 * continues without the slow task. If the task is due again before it has ended, it is repeated right after it ends.
 *
 * A task that repairs something may request another round. The pauses between rounds that tasks request grow, since a repair
 * without effect would otherwise be repeated without end.
 */
export class Reconciler implements AsyncDisposable {
  readonly #options: ReconcilerOptions;
  readonly #stop = new AbortController();
  readonly #running = new Background();
  /** Tasks that a round has requested and that have not begun. */
  readonly #due = new Set<ReconcileTask>();
  /** Marks code that runs in a task, to tell its calls of `nudge` from all others. */
  readonly #inRound = new AsyncLocalStorage<true>();
  #wake = Promise.withResolvers<void>();
  #ownWake = Promise.withResolvers<void>();
  #isOwnNudge = false;
  /** Number of consecutive rounds that tasks have requested. */
  #ownNudges = 0;
  #loop: Promise<void> = Promise.resolve();

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** Starts the rounds. The first one begins after the regular pause, or on request. */
  start(): void {
    this.#loop = this.#run();
  }

  /** Requests a round. It begins at once, unless a task requests it and tasks have also requested the previous one. */
  nudge(): void {
    if (this.#inRound.getStore() === true) {
      this.#isOwnNudge = true;
      this.#ownWake.resolve();
    } else this.#wake.resolve();
  }

  /**
   * Requests a round after a short pause that does not grow: for a task that waits for a change that no event reports. Does not
   * delay the rounds that tasks request for repairs.
   */
  nudgeLater(): void {
    void this.#running.run('pause before a check', async (signal) => {
      await this.#options.clock.sleep(periods.sharedReservations, signal);
      this.#wake.resolve();
    });
  }

  /** Runs one round. Never rejects. */
  async round(): Promise<void> {
    await this.#inRound.run(true, () => this.#runTasks());
  }

  async #runTasks(): Promise<void> {
    const { signal } = this.#stop;
    for (const task of this.#options.tasks) {
      if (signal.aborted) return;
      this.#due.add(task);
      const run = this.#running.run(
        task.name,
        (stop) => this.#runTask(task, stop),
        () => this.#due.has(task),
      );
      await resolvesWithin(this.#options.clock, taskMs, run, signal);
    }
  }

  async #runTask(task: ReconcileTask, signal: AbortSignal): Promise<void> {
    this.#due.delete(task);
    try {
      await task.run(signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#options.logger.warn({ err: error, task: task.name }, 'cannot complete a task of reconciliation');
    }
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#running[Symbol.asyncDispose]();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#pause(signal);
      if (!signal.aborted) await this.round();
    }
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const { everyMs, clock } = this.#options;
    const wake = this.#wake.promise;
    const isNudged = await resolvesWithin(clock, everyMs, Promise.race([wake, this.#ownWake.promise]), signal);
    if (isNudged && this.#isOwnNudge && this.#ownNudges > 0) {
      const ms = Math.min(pauseMs(this.#ownNudges - 1, pauses.reconcile), everyMs);
      await resolvesWithin(clock, ms, wake, signal);
    }
    this.#ownNudges = this.#isOwnNudge ? this.#ownNudges + 1 : 0;
    this.#isOwnNudge = false;
    this.#wake = Promise.withResolvers<void>();
    this.#ownWake = Promise.withResolvers<void>();
  }
}
