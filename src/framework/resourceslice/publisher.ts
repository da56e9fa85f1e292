import { pauseMs } from '../../lib/backoff.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import { copyOf } from '../../lib/copy.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { notify } from '../../lib/notify.ts';
import { passingRefusals, pauses, periods } from '../../lib/waiting-times.ts';
import { isKubeError, retryPauseMs } from '../kube/index.ts';
import { formatAttributeStrings } from '../metadata/document/attribute.ts';
import { formatProblems, SliceError } from './errors.ts';
import type { DriverResources, Pool } from './model.ts';
import { PoolWriter } from './pool-writer.ts';
import type { SliceApi } from './slice-api.ts';
import { SliceWatch } from './slice-watch.ts';
import { validatePool } from './validate.ts';

const quietConflicts = 3;
/**
 * Jitter of waits, as shares of them: nodes that started, or lost the API server, at the same moment must not all return at the
 * same moment.
 */
const jitter = { wait: 1, recheck: 0.2 };

export interface PublisherOptions {
  driver: string;
  nodeName: string;
  clock: Clock;
  logger: Logger;
  /** Returns numbers from 0 up to 1, for the jitter of each wait; default `Math.random`. */
  random?: () => number;
  /**
   * Called with errors that keep the devices from being published as wanted, after they were logged: `slice-invalid` once for
   * each call of `publish`, `slice-fields-dropped` once for the fields of a pool, and every failure to write.
   */
  onError?: (error: Error) => void;
  /** Called after each check in which the API server has all pools as wanted. */
  onSynced?: () => void;
}

/**
 * Publishes the devices of one driver on one node as ResourceSlices and reconciles them: reverts changes and deletions by other
 * clients and leaves correct slices alone. Failures are logged, reported and retried. Slices stay when the publisher ends: the
 * next instance takes them over; without one, the kubelet removes them.
 */
export class SlicePublisher implements AsyncDisposable {
  readonly #api: SliceApi;
  readonly #options: PublisherOptions;
  readonly #writer: PoolWriter;
  readonly #watch: SliceWatch;
  readonly #random: () => number;
  readonly #stop = new AbortController();
  /** Wanted pools; `undefined` for an invalid pool, whose slices stay as they are. */
  #pools = new Map<string, Pool | undefined>();
  /** Wanted pools, with the last valid version of an invalid one. */
  #offered = new Map<string, Pool>();
  #loop: Promise<void> | undefined;
  #asked = false;
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
   * Sets the devices to offer from now on. A pool that the API server would refuse is reported, and its published slices stay;
   * the other pools are published.
   */
  publish(resources: DriverResources): void {
    // Copied, since drivers may change their objects.
    const pools = Object.entries(copyOf(resources.pools));
    this.#pools = new Map(pools.map(([name, pool]) => [name, this.#isValid(name, pool) ? pool : undefined]));
    const offered = [...this.#pools].map(([name, pool]) => [name, pool ?? this.#offered.get(name)] as const);
    this.#offered = new Map(offered.filter((entry): entry is [string, Pool] => entry[1] !== undefined));
    this.recheck();
    this.#loop ??= this.#run();
  }

  /**
   * Looks up a device's published attributes as text: numbers in decimal, `true` and `false`, lists with commas. Uses the last
   * valid `publish`, whether or not the API server can be reached.
   * @returns `undefined` for a device that is not offered
   * Source: KEP-5304 of October 2025, `LookupDeviceAttributes`
   */
  lookupDeviceAttributes(poolName: string, deviceName: string): Record<string, string> | undefined {
    const device = this.#offered.get(poolName)?.devices.find(({ name }) => name === deviceName);
    return device && formatAttributeStrings(device.attributes ?? {});
  }

  /** Checks at once whether the API server still has the wanted slices. */
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
    let refusals = 0;
    let repairs = 0;
    while (!signal.aborted) {
      const isRepair = this.#changed && !this.#asked;
      this.#asked = false;
      this.#changed = false;
      try {
        const hasRepaired = await this.#sync(signal);
        repairs = isRepair && hasRepaired ? repairs + 1 : 0;
        failures = 0;
        refusals = 0;
        // A pool that was refused at `publish` is not in its wanted state.
        if (![...this.#pools.values()].includes(undefined))
          notify(this.#options.logger, 'onSynced', this.#options.onSynced);
        await this.#pause(this.#longer(periods.sliceRecheck, jitter.recheck), () => this.#asked || this.#changed);
        // Other clients often make several changes in a row, for example when they delete all slices of a node.
        if (this.#changed)
          await this.#pause(this.#longer(pauseMs(repairs, pauses.sliceRepair), jitter.wait), () => this.#asked);
      } catch (error) {
        if (signal.aborted) return;
        refusals = isRefusal(error) ? refusals + 1 : 0;
        const waitMs = this.#longer(retryDelayMs(error, failures++, refusals), jitter.wait);
        if (!isKubeError(error, 'api-conflict') || failures > quietConflicts) this.#report(error as Error, waitMs);
        await this.#pause(waitMs, () => this.#asked);
      }
    }
  }

  #longer(ms: number, share: number): number {
    return Math.round(ms * (1 + share * this.#random()));
  }

  async #pause(ms: number, hasHappened: () => boolean): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stop;
    const endsAtMs = clock.nowMs() + ms;
    for (let leftMs = ms; leftMs > 0 && !hasHappened() && !signal.aborted; leftMs = endsAtMs - clock.nowMs()) {
      this.#wake = Promise.withResolvers();
      await resolvesWithin(clock, leftMs, this.#wake.promise, signal);
    }
  }

  /**
   * Publishes all pools once. @returns whether it reverted changes by other clients @throws the first error that kept a pool
   * from publication
   */
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
    // The first error determines when to retry.
    for (const error of failures.slice(1)) this.#report(error as Error);
    if (failures.length > 0) throw failures[0];
    return hasRepaired;
  }

  #report(error: Error, retryInMs?: number): void {
    const fields = { err: error, reason: explain(error), ...(retryInMs === undefined ? {} : { retryMs: retryInMs }) };
    this.#options.logger.error(fields, 'cannot publish ResourceSlices');
    notify(this.#options.logger, 'onError', this.#options.onError, error);
  }
}

/** Returns whether only a change in the cluster can end the failure. A 401 is none: it ends with the next token. */
function isRefusal(error: unknown): boolean {
  return isKubeError(error) && !error.retriable && error.code !== 'api-unauthorized';
}

function retryDelayMs(error: unknown, failures: number, refusals: number): number {
  if (refusals > passingRefusals) return retryPauseMs(error, failures, pauses.refused);
  const isConflict = isKubeError(error, 'api-conflict', 'api-expired');
  return retryPauseMs(error, failures, isConflict ? pauses.sliceConflict : pauses.slices);
}
