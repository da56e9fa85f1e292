import { onAbort } from './abort.ts';

/** Number of running tasks of one key, and callbacks that start the waiting tasks. */
interface Queue {
  running: number;
  waiting: Set<() => void>;
}

/** Locks by key, for the tasks of one or several processes. */
export interface Locks {
  /** Number of waiting tasks of this process. */
  readonly waiting: number;
  run<T>(key: string, task: () => Promise<T>, signal?: AbortSignal): Promise<T>;
  acquireAll(keys: readonly string[], signal?: AbortSignal): Promise<Disposable>;
}

/** Runs tasks of the same key one after the other, in the order of the calls; tasks of other keys do not wait. */
export class KeyedMutex implements Locks {
  readonly #limit: number;
  readonly #queues = new Map<string, Queue>();

  /** Creates a mutex. @param limit number of tasks with the same key that may run at once */
  constructor(limit = 1) {
    this.#limit = limit;
  }

  /** Number of waiting tasks of this process. */
  get waiting(): number {
    return [...this.#queues.values()].reduce((sum, { waiting }) => sum + waiting.size, 0);
  }

  /** Runs a task when it gets the key. @throws the signal's reason if the signal aborts while the task waits */
  async run<T>(key: string, task: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    using _ = await this.acquire(key, signal);
    return await task();
  }

  /** Acquires the key; dispose the result to release it. @throws the signal's reason if the signal aborts before */
  acquire(key: string, signal?: AbortSignal): Promise<Disposable> {
    return this.acquireAll([key], signal);
  }

  /** Acquires several keys. Waits for all tasks that use one of them. */
  async acquireAll(keys: readonly string[], signal?: AbortSignal): Promise<Disposable> {
    using turns = new DisposableStack();
    // Each key once and in sorted order, so that two tasks never wait for each other.
    for (const key of [...new Set(keys)].sort()) turns.use(await this.#turn(key, signal));
    return turns.move();
  }

  async #turn(key: string, signal?: AbortSignal): Promise<Disposable> {
    signal?.throwIfAborted();
    const queue = this.#queues.get(key) ?? { running: 0, waiting: new Set() };
    this.#queues.set(key, queue);
    if (queue.running < this.#limit) queue.running++;
    else await waitIn(queue, signal);
    return { [Symbol.dispose]: () => this.#end(key, queue) };
  }

  #end(key: string, queue: Queue): void {
    const [next] = queue.waiting;
    if (next === undefined) {
      queue.running--;
      if (queue.running === 0) this.#queues.delete(key);
    } else {
      queue.waiting.delete(next);
      next();
    }
  }
}

/** Waits until a task that ends passes its place on. */
async function waitIn({ waiting }: Queue, signal: AbortSignal | undefined): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  waiting.add(resolve);
  using _ = onAbort(signal, () => waiting.delete(resolve) && reject(signal?.reason));
  await promise;
}
