import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';

/** Interval between scans of a quiet node after a change, and between ticks, ms. */
const rescanMs = 2_000;
/** Minimum interval between scans of a busy node, where pods come and go, ms: reading 80 VFs takes some 35 ms. */
const busyRescanMs = 10_000;
/** Maximum interval between scans, ms. It bounds how late changes without an event are noticed. */
export const longestRescanMs = 30_000;
/** Number of scans after a change: the inventory considers a VF lost only after two scans without it. */
const scansPerChange = 2;

export interface ScanScheduleOptions {
  clock: Clock;
  /** Calls `onChange` when the node's devices or interfaces change. Absent: every tick scans. */
  watchHost?: (onChange: () => void) => Disposable;
  logger: Logger;
}

/** Inputs of a scan besides the node. */
export interface ScanInputs {
  /** Devices of claims. They are compared deeply, unless the object is the same. */
  held: unknown;
  /** Text that changes when devices are withdrawn or offered again. */
  quarantine: string;
}

/** Decides when the node's devices are scanned. */
export class ScanSchedule implements Disposable {
  readonly #options: ScanScheduleOptions;
  readonly #read: () => ScanInputs;
  #inputs: ScanInputs = { held: new Map(), quarantine: '' };
  #hostWatch: Disposable | undefined;
  /** Whether the node reports its changes. If not, every tick scans. */
  #isWatched = true;
  /** Number of scans that are due even without a further change. */
  #scansLeft = 0;
  #scannedAtMs = 0;
  /** Whether the node or claims have changed since the last tick. */
  #isBusy = false;

  constructor(options: ScanScheduleOptions, read: () => ScanInputs) {
    this.#options = options;
    this.#read = read;
  }

  /** Whether the node has reported a change since the last tick. */
  get hasNews(): boolean {
    return this.#isBusy;
  }

  /** Waits for the next tick, then watches the node, so that no change after the following scan is missed. */
  async tick(signal: AbortSignal): Promise<void> {
    await this.#options.clock.sleep(rescanMs, signal);
    this.#watchHost();
  }

  /** Records that a scan begins. */
  started(): void {
    this.#scannedAtMs = this.#options.clock.nowMs();
  }

  /** Requests scans at the next ticks. */
  request(): void {
    this.#scansLeft = scansPerChange;
  }

  /** Returns whether a scan is due. Must be called once for each tick. */
  isDue(): boolean {
    const isUrgent = this.#followInputs();
    const sinceMs = this.#options.clock.nowMs() - this.#scannedAtMs;
    const isBusy = this.#isBusy;
    this.#isBusy = false;
    if (this.#isWatched && !isUrgent) {
      if (this.#scansLeft === 0 && sinceMs < longestRescanMs) return false;
      if (isBusy && sinceMs < busyRescanMs) return false;
    }
    this.#scansLeft = Math.max(0, this.#scansLeft - 1);
    return true;
  }

  [Symbol.dispose](): void {
    this.#hostWatch?.[Symbol.dispose]();
  }

  /**
   * Reads the inputs of the next scan, and requests scans if they have changed. @returns whether devices must be withdrawn or
   * offered again at once
   */
  #followInputs(): boolean {
    const { held, quarantine } = this.#inputs;
    this.#inputs = this.#read();
    if (!isDeepStrictEqual(this.#inputs.held, held)) this.#isBusy = true;
    const isUrgent = this.#inputs.quarantine !== quarantine;
    if (this.#isBusy || isUrgent) this.request();
    return isUrgent;
  }

  /**
   * Watches the node until its next change. Each pod that comes or goes causes some forty messages: those after the first
   * cost as much and carry no more information.
   */
  #watchHost(): void {
    const { logger, watchHost } = this.#options;
    const wasWatched = this.#isWatched;
    try {
      this.#hostWatch ??= watchHost?.(() => {
        this.#isBusy = true;
        this.#hostWatch?.[Symbol.dispose]();
        this.#hostWatch = undefined;
      });
      this.#isWatched = this.#hostWatch !== undefined;
    } catch (error) {
      this.#isWatched = false;
      if (wasWatched) logger.warn({ err: error }, 'cannot watch the devices for changes; scanning every two seconds');
    }
  }
}
