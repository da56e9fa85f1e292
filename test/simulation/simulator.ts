import type { Clock, Deadline } from '../../src/lib/clock.ts';
import type { Tape } from './tape.ts';

/** Wall time at the start of a schedule. */
export const epochMs = Date.UTC(2026, 0, 1);

/** Thrown into code of a process that has just been killed, by its next call. */
export class Killed extends Error {
  constructor() {
    super('killed');
  }
}

/** A schedule that never leaves one moment of simulated time, or takes far too many steps. */
export class EndlessSchedule extends Error {}

interface Timer {
  atMs: number;
  order: number;
  readonly process: Process | undefined;
  readonly name: string;
  run: (() => void) | undefined;
  /** Removes the listener that would cancel it. */
  readonly release: (() => void) | undefined;
}

export interface Cancel {
  cancel(): void;
}

/**
 * Something that can be killed: an instance of the driver, the kubelet, the runtime. When it is killed, its scheduled work
 * is cancelled, its calls are never answered, and whatever its code still does in the same step has no effect.
 */
export class Process {
  readonly name: string;
  readonly clock: SimulatedClock;
  readonly #simulator: Simulator;
  readonly #onEnd = new Set<() => void>();
  #state: 'alive' | 'dying' | 'ended' = 'alive';
  /** It does not run before this time. */
  stalledUntilMs = 0;
  /** The change that it was killed before, if it was. */
  diedBefore: string | undefined;
  /** Number of kill points that it still passes before it is killed. */
  #pointsLeft = Number.POSITIVE_INFINITY;

  constructor(simulator: Simulator, name: string) {
    this.#simulator = simulator;
    this.name = name;
    this.clock = new SimulatedClock(simulator, this);
  }

  get isAlive(): boolean {
    return this.#state === 'alive';
  }

  killAfter(points: number): void {
    this.#pointsLeft = points;
  }

  /** Called when it has ended; other processes learn of it by events of their own. */
  onEnd(task: () => void): Disposable {
    if (this.#state === 'ended') task();
    else this.#onEnd.add(task);
    return { [Symbol.dispose]: () => void this.#onEnd.delete(task) };
  }

  kill(): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.#simulator.trace(this.name, 'killed');
    for (const task of [...this.#onEnd]) task();
    this.#onEnd.clear();
  }

  /** Ends it after the current step if it was killed in that step. */
  settle(): void {
    if (this.#state === 'dying') this.kill();
  }

  /** A point at which it may be killed. @throws Killed */
  point(what: string): void {
    if (!this.passes(what)) throw new Killed();
  }

  passes(what: string): boolean {
    if (this.#state !== 'alive') return false;
    this.#pointsLeft -= 1;
    if (this.#pointsLeft > 0) return true;
    this.#state = 'dying';
    this.diedBefore = what;
    this.#simulator.trace(this.name, `dies before ${what}`);
    return false;
  }

  /**
   * A call that takes effect at once and is answered later; without a delay the answer is there in the next microtask. Never
   * answered if the process is killed meanwhile.
   */
  call<T>(what: string, delayMs: number, effect: () => T): Promise<T> {
    if (!this.passes(what)) return new Promise(() => undefined);
    if (delayMs === 0) return new Promise((resolve) => resolve(effect()));
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let answer: () => void;
    try {
      const value = effect();
      answer = () => resolve(value);
    } catch (error) {
      answer = () => reject(error);
    }
    this.#simulator.schedule(delayMs, this, what, answer);
    return promise;
  }

  async sleep(ms: number, what = 'sleep'): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#simulator.schedule(ms, this, what, resolve);
    await promise;
  }
}

/** One line of the trace. */
export type TraceLine = readonly [atMs: number, who: string, what: string];

const turnsAtOnce = 100;

/** Runs all events in one order: by time, and at the same time in the order in which they were scheduled. */
export class Simulator {
  readonly tape: Tape;
  nowMs = 0;
  /** The process whose code is running. */
  current: Process | undefined;
  steps = 0;
  maxSteps = 60_000;
  readonly lines: TraceLine[] | undefined;
  readonly #heap: Timer[] = [];
  readonly #turns = new Turns();
  #order = 0;

  constructor(tape: Tape, isTraced = false) {
    this.tape = tape;
    this.lines = isTraced ? [] : undefined;
  }

  /** @param what a function if it is expensive to build: it is not called without a trace */
  trace(who: string, what: string | (() => string)): void {
    this.lines?.push([this.nowMs, who, typeof what === 'string' ? what : what()]);
  }

  schedule(delayMs: number, process: Process | undefined, name: string, run: () => void, release?: () => void): Cancel {
    const timer: Timer = { atMs: this.nowMs + Math.max(0, delayMs), order: this.#order++, process, name, run, release };
    push(this.#heap, timer);
    return {
      cancel: () => {
        timer.run = undefined;
      },
    };
  }

  /**
   * Cancels all timers. Node.js keeps a signal of `AbortSignal.any` alive while it has listeners, so the timers of killed
   * processes would keep the whole schedule in memory.
   */
  end(): void {
    for (const { release } of this.#heap.splice(0)) release?.();
  }

  /** Names of the work scheduled for a process. */
  pending(process: Process): string[] {
    return this.#heap.filter((timer) => timer.process === process && timer.run !== undefined).map(({ name }) => name);
  }

  /**
   * Runs until the time is reached, or no work is left.
   * @param check after each step
   */
  async runUntil(endMs: number, check: () => void): Promise<void> {
    for (;;) {
      const timer = this.#heap[0];
      if (timer === undefined || timer.atMs > endMs) break;
      pop(this.#heap);
      const { run, process, release } = timer;
      if (run === undefined || process?.isAlive === false) {
        release?.();
        continue;
      }
      if (process !== undefined && process.stalledUntilMs > timer.atMs) {
        timer.atMs = process.stalledUntilMs;
        timer.order = this.#order++;
        push(this.#heap, timer);
        continue;
      }
      this.nowMs = timer.atMs;
      if (++this.steps > this.maxSteps)
        throw new EndlessSchedule(`${this.maxSteps} steps by ${Math.round(this.nowMs)} ms`);
      this.current = process;
      timer.run = undefined;
      run();
      await this.#turns.next();
      this.current = undefined;
      process?.settle();
      check();
    }
    this.nowMs = Math.max(this.nowMs, endMs);
  }
}

/**
 * Runs all microtasks: code in a simulation waits only for those and the simulator's own events. Node.js runs them
 * after each immediate, and immediates that were set together in one round of its event loop, which takes longer than
 * an event of the simulation: so they are set in advance.
 */
class Turns {
  #left = 0;
  #resolve: (() => void) | undefined;

  next(): Promise<void> {
    if (this.#left === 0) {
      for (let count = 0; count < turnsAtOnce; count++) setImmediate(() => this.#run());
      this.#left = turnsAtOnce;
    }
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  #run(): void {
    this.#left -= 1;
    const resolve = this.#resolve;
    this.#resolve = undefined;
    resolve?.();
  }
}

/** The clock of a process. */
class SimulatedClock implements Clock {
  readonly #simulator: Simulator;
  readonly #process: Process;
  /** The sleeps that a signal ends share a listener: one for each takes longer than the rest of a sleep. */
  readonly #wakers = new Map<AbortSignal, { wakers: Set<() => void>; listener: () => void }>();

  constructor(simulator: Simulator, process: Process) {
    this.#simulator = simulator;
    this.#process = process;
    process.onEnd(() => {
      for (const [signal, { listener }] of this.#wakers) signal.removeEventListener('abort', listener);
    });
  }

  nowMs(): number {
    return this.#simulator.nowMs;
  }

  deadline(timeoutMs: number, parent?: AbortSignal): Deadline {
    const controller = new AbortController();
    const endsAt = this.#simulator.nowMs + timeoutMs;
    const onParentAbort = () => controller.abort(parent?.reason);
    const release = () => parent?.removeEventListener('abort', onParentAbort);
    const onTimeout = () => controller.abort(new DOMException(`deadline of ${timeoutMs} ms passed`, 'TimeoutError'));
    const timer = this.#simulator.schedule(timeoutMs, this.#process, 'deadline', onTimeout, release);
    if (parent?.aborted) onParentAbort();
    else parent?.addEventListener('abort', onParentAbort, { once: true });
    return {
      signal: controller.signal,
      remainingMs: () => Math.max(0, endsAt - this.#simulator.nowMs),
      [Symbol.dispose]: () => {
        timer.cancel();
        release();
      },
    };
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const wakers = signal && this.#wakersOf(signal);
      const wake = () => {
        timer.cancel();
        reject(signal?.reason);
      };
      const timer = this.#simulator.schedule(ms, this.#process, `sleep ${ms}`, () => {
        wakers?.delete(wake);
        resolve();
      });
      wakers?.add(wake);
    });
  }

  #wakersOf(signal: AbortSignal): Set<() => void> {
    const known = this.#wakers.get(signal);
    if (known !== undefined) return known.wakers;
    const wakers = new Set<() => void>();
    const listener = () => {
      for (const wake of wakers) wake();
    };
    this.#wakers.set(signal, { wakers, listener });
    signal.addEventListener('abort', listener, { once: true });
    return wakers;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

function push(heap: Timer[], timer: Timer): void {
  let at = heap.length;
  heap.push(timer);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!isBefore(timer, heap[parent]!)) break;
    heap[at] = heap[parent]!;
    at = parent;
  }
  heap[at] = timer;
}

function pop(heap: Timer[]): void {
  const last = heap.pop()!;
  if (heap.length === 0) return;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
    if (!isBefore(heap[child]!, last)) break;
    heap[at] = heap[child]!;
    at = child;
  }
  heap[at] = last;
}
