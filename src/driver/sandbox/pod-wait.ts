import type { Clock } from '../../lib/clock.ts';
import type { ClaimSteps, DeviceSteps } from './claim-work.ts';

/**
 * Phase of a pod's wait: `queued` is the time before the work on its devices begins, between failed attempts, and until
 * other work on the same claim has ended; in `attach` VFs are moved, configured and read, and routers give them addresses;
 * in `write` the metadata is written and the start gates are opened.
 */
export type WaitPhase = 'queued' | 'attach' | 'write';

/** `ended`: the sandbox or its claims ended before all devices were ready. */
export type WaitResult = 'ready' | 'ended';

/** Milliseconds by phase; `total` is their sum. */
export type WaitTimes = Record<WaitPhase | 'total', number>;

export interface PodWaitOptions {
  clock: Clock;
  /** Called when a pod no longer waits for its VFs. Not called for VFs that were attached when the driver started. */
  onWaited: (result: WaitResult, times: WaitTimes) => void;
}

/** How long a pod waits for its devices, counted from the start of its sandbox. */
export class PodWait {
  readonly #options: PodWaitOptions;
  /** Times so far; `undefined` while the pod does not wait. */
  #spent: WaitTimes | undefined;
  #phase: WaitPhase = 'queued';
  #enteredMs = 0;
  #isSlow = false;

  constructor(options: PodWaitOptions) {
    this.#options = options;
  }

  /** Begins the wait, unless the pod already waits. */
  begin(sinceMs: number): void {
    if (this.#spent !== undefined) return;
    this.#spent = { queued: 0, attach: 0, write: 0, total: 0 };
    this.#phase = 'queued';
    this.#enteredMs = sinceMs;
  }

  enter(phase: WaitPhase): void {
    if (this.#spent === undefined) return;
    const nowMs = this.#options.clock.nowMs();
    for (const each of [this.#phase, 'total'] as const) this.#spent[each] += nowMs - this.#enteredMs;
    this.#enteredMs = nowMs;
    this.#phase = phase;
  }

  end(result: WaitResult): void {
    this.#isSlow = false;
    this.enter('queued');
    if (this.#spent !== undefined) this.#options.onWaited(result, this.#spent);
    this.#spent = undefined;
  }

  /** Records that the pod waits long. @returns whether that is new since the last wait ended */
  becomesSlow(): boolean {
    const isNew = !this.#isSlow;
    this.#isSlow = true;
    return isNew;
  }

  /** Time waited so far, ms; `undefined` while the pod does not wait. */
  get waitedMs(): number | undefined {
    this.enter(this.#phase);
    return this.#spent?.total;
  }

  /**
   * Wraps the work on a claim, to enter its phases as its devices are attached.
   * @param waits called when only routers are awaited any more
   */
  timed(steps: DeviceSteps, ...waits: readonly (() => void)[]): ClaimSteps {
    return {
      deviceBegins: (device) => {
        this.enter('attach');
        steps.deviceBegins(device);
      },
      deviceReady: () => {
        this.enter('write');
        steps.deviceReady();
      },
      waits: () => {
        this.enter('attach');
        for (const each of waits) each();
      },
    };
  }
}
