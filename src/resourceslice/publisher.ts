import type { Clock } from '../clock.ts';
import { explain } from '../errors.ts';
import { isKubeError } from '../kube/index.ts';
import type { Logger } from '../logger.ts';
import { formatProblems, SliceError } from './errors.ts';
import type { DriverResources, Pool } from './model.ts';
import { PoolWriter } from './pool-writer.ts';
import type { SliceApi } from './slice-api.ts';
import { SliceWatch } from './slice-watch.ts';
import { validatePool } from './validate.ts';

/** Everything is looked at this often, for what the watch may have missed. */
const recheckMs = 300_000;
/** Others' changes are put back after a while that grows, so that two who disagree do not keep the API server busy. */
const repairMs = { first: 1_000, last: 60_000 };
const retryMs = { first: 1_000, last: 30_000, hopeless: 300_000 };
/** Conflicts mean that somebody else was quicker: looking again at once nearly always helps. */
const conflictMs = { first: 50, last: 30_000 };
const quietConflicts = 3;
/** Nodes that started, or lost the API server, at the same moment shall not all come back at the same moment. */
const jitter = { wait: 1, recheck: 0.2 };

export interface PublisherOptions {
  driver: string;
  nodeName: string;
  clock: Clock;
  logger: Logger;
  /** From 0 up to 1, for how much longer than needed to wait; default `Math.random`. */
  random?: () => number;
  /**
   * Gets what keeps the devices from being offered as they should: `slice-invalid` once for what was published,
   * `slice-fields-dropped` once for the fields of a pool, and every failure to write. All are logged already.
   */
  onError?: (error: Error) => void;
  /** Called when the API server has all pools as they are wanted, at each look. */
  onSynced?: () => void;
}

/**
 * Publishes the devices of one driver on one node as ResourceSlices, and keeps them so: what others delete or change is
 * put back, what is right is left alone. Failures are logged, reported and tried again. Slices are not deleted at the
 * end: the next instance finds them, and else the kubelet does away with them.
 */
export class SlicePublisher implements AsyncDisposable {
  readonly #api: SliceApi;
  readonly #options: PublisherOptions;
  readonly #writer: PoolWriter;
  readonly #watch: SliceWatch;
  readonly #random: () => number;
  readonly #stop = new AbortController();
  /** What is wanted; `undefined` for a pool that stays as it is, since it would be refused. */
  #pools = new Map<string, Pool | undefined>();
  #loop: Promise<void> | undefined;
  /** Somebody wants us to look. */
  #asked = false;
  /** Somebody else changed our slices. */
  #changed = false;
  #wake = Promise.withResolvers<void>();

  constructor(api: SliceApi, options: PublisherOptions) {
    this.#api = api;
    this.#options = options;
    const { clock, logger } = options;
    this.#random = options.random ?? Math.random;
    this.#writer = new PoolWriter(api, { ...options, report: (error) => this.#report(error) });
    this.#watch = new SliceWatch(api, { clock, logger, random: this.#random, onChange: () => this.#noteChange() });
  }

  /**
   * What is to be offered from now on. A pool that the API server would refuse is reported and stays as it was
   * published before; the others are published.
   */
  publish(resources: DriverResources): void {
    // A copy: drivers may change their objects.
    const pools = Object.entries(structuredClone(resources.pools));
    this.#pools = new Map(pools.map(([name, pool]) => [name, this.#isValid(name, pool) ? pool : undefined]));
    this.recheck();
    this.#loop ??= this.#run();
  }

  /** Looks at once whether the API server still has what it should. */
  recheck(): void {
    this.#asked = true;
    this.#wake.resolve();
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#loop;
    await this.#watch[Symbol.asyncDispose]();
  }

  #noteChange(): void {
    this.#changed = true;
    this.#wake.resolve();
  }

  #isValid(name: string, pool: Pool): boolean {
    const problems = validatePool(name, pool, this.#options.driver);
    if (problems.length === 0) return true;
    const device = problems.find((problem) => problem.device !== undefined)?.device;
    const details = { pool: name, problems, ...(device === undefined ? {} : { device }) };
    this.#report(
      new SliceError('slice-invalid', `pool ${name} cannot be published: ${formatProblems(problems)}`, details),
    );
    return false;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    let failures = 0;
    let repairPauseMs: number = repairMs.first;
    while (!signal.aborted) {
      const isRepair = this.#changed && !this.#asked;
      this.#asked = false;
      this.#changed = false;
      try {
        const hasRepaired = await this.#sync(signal);
        repairPauseMs = isRepair && hasRepaired ? Math.min(2 * repairPauseMs, repairMs.last) : repairMs.first;
        failures = 0;
        // A pool that was refused at `publish` is not as it is wanted.
        if (![...this.#pools.values()].includes(undefined)) this.#options.onSynced?.();
        await this.#pause(this.#longer(recheckMs, jitter.recheck), () => this.#asked || this.#changed);
        // Several changes by others often follow each other: all slices of a node deleted, for one.
        if (this.#changed) await this.#pause(this.#longer(repairPauseMs, jitter.wait), () => this.#asked);
      } catch (error) {
        if (signal.aborted) return;
        const waitMs = this.#longer(retryDelayMs(error, failures++), jitter.wait);
        if (!isKubeError(error, 'api-conflict') || failures > quietConflicts) this.#report(error as Error, waitMs);
        await this.#pause(waitMs, () => this.#asked);
      }
    }
  }

  #longer(ms: number, share: number): number {
    return Math.round(ms * (1 + share * this.#random()));
  }

  /** Waits, or until something has happened. */
  async #pause(ms: number, hasHappened: () => boolean): Promise<void> {
    const pause = new AbortController();
    const signal = AbortSignal.any([pause.signal, this.#stop.signal]);
    let isOver = false;
    const over = this.#options.clock
      .sleep(ms, signal)
      .catch(() => undefined)
      .then(() => {
        isOver = true;
      });
    while (!isOver && !hasHappened()) {
      this.#wake = Promise.withResolvers();
      await Promise.race([over, this.#wake.promise]);
    }
    pause.abort();
  }

  /** @returns whether something of ours had to be put back @throws what kept a pool from being published */
  async #sync(signal: AbortSignal): Promise<boolean> {
    const { slices, resourceVersion } = await this.#api.list(signal);
    this.#watch.follow(resourceVersion);
    using _quiet = this.#watch.hold((slice) => this.#writer.isOurs(slice));
    const pools = this.#pools;
    const names = new Set([...pools.keys(), ...slices.map(({ spec }) => spec.pool.name)]);
    const failures: unknown[] = [];
    let hasRepaired = false;
    for (const name of names) {
      const actual = slices.filter(({ spec }) => spec.pool.name === name);
      const pool = pools.get(name);
      try {
        if (!pools.has(name)) await this.#writer.remove(name, actual, signal);
        else if (pool !== undefined)
          hasRepaired = (await this.#writer.write(name, pool, actual, signal)) || hasRepaired;
      } catch (error) {
        signal.throwIfAborted();
        failures.push(error);
      }
    }
    // The first decides when to try again.
    for (const error of failures.slice(1)) this.#report(error as Error);
    if (failures.length > 0) throw failures[0];
    return hasRepaired;
  }

  #report(error: Error, retryInMs?: number): void {
    const fields = { err: error, reason: explain(error), ...(retryInMs === undefined ? {} : { retryMs: retryInMs }) };
    this.#options.logger.error(fields, 'devices are not offered as they should be');
    this.#options.onError?.(error);
  }
}

/** How long to wait before the next attempt, after so many failures in a row before. */
function retryDelayMs(error: unknown, failures: number): number {
  const { first, last } = isKubeError(error, 'api-conflict', 'api-expired') ? conflictMs : retryMs;
  const grown = first * 2 ** Math.min(failures, 20);
  // What the server refuses for good changes only with its configuration.
  const isHopeless = isKubeError(error) && !error.retriable && failures >= 5;
  const askedMs = isKubeError(error) ? (error.retryAfterMs ?? 0) : 0;
  return Math.max(askedMs, isHopeless ? retryMs.hopeless : Math.min(grown, last));
}
