import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';

/** Time within which a quiet node notices devices that appear or vanish, ms. */
const rescanMs = 2_000;
/** The same for a busy node, for example while pods come and go: reading 80 VFs takes some 35 ms. */
const busyRescanMs = 10_000;
/** Time within which changes without an event are noticed, ms. */
export const longestRescanMs = 30_000;
/** Scans after a change: the inventory considers a VF lost after two scans without it. */
const scansPerChange = 2;

export interface ScanScheduleOptions {
  clock: Clock;
  /** Reports changes of the node's devices and interfaces. Absent: they are polled. */
  watchHost?: (onChange: () => void) => Disposable;
  logger: Logger;
}

/** Inputs of a scan besides the node. */
export interface ScanInputs {
  /** Compared deeply; the same object is known to be the same. */
  held: unknown;
  /** Text that differs when other devices are in quarantine. */
  quarantine: string;
}

/** Decides when the node's devices are scanned. */
export class ScanSchedule implements Disposable {
  readonly #options: ScanScheduleOptions;
  readonly #read: () => ScanInputs;
  #inputs: ScanInputs = { held: new Map(), quarantine: '' };
  #hostWatch: Disposable | undefined;
  /** Whether the node reports its changes; otherwise it is scanned at each tick. */
  #isWatched = true;
  /** Number of scans that are due even without further changes. */
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

  /** Waits for the next tick. Watches the node from then on, so that no change after the scan is missed. */
  async tick(signal: AbortSignal): Promise<void> {
    await this.#options.clock.sleep(rescanMs, signal);
    this.#watchHost();
  }

  /** Records the start of a scan. */
  started(): void {
    this.#scannedAtMs = this.#options.clock.nowMs();
  }

  /** Requests scans at the next ticks. */
  request(): void {
    this.#scansLeft = scansPerChange;
  }

  /** Returns whether something may have changed, so that a scan is due. Call it once for each tick. */
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

  /** @returns whether devices must be withdrawn or offered again */
  #followInputs(): boolean {
    const { held, quarantine } = this.#inputs;
    this.#inputs = this.#read();
    if (!isDeepStrictEqual(this.#inputs.held, held)) this.#isBusy = true;
    const isUrgent = this.#inputs.quarantine !== quarantine;
    if (this.#isBusy || isUrgent) this.request();
    return isUrgent;
  }

  /**
   * Watches the node until its next change. Further messages would cost as much as the first and carry no more information:
   * each pod that comes or goes causes some forty.
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
