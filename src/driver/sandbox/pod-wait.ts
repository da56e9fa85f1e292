import type { Clock } from '../../lib/clock.ts';
import type { ClaimSteps, DeviceSteps } from './claim-work.ts';

/**
 * Phase of a pod's wait. `queued`: before the work on its devices begins, between failed attempts, and while other work holds
 * the claim's lock. `attach`: VFs are moved, configured and read, and routers give them addresses. `write`: the metadata is
 * written and the start gates are opened.
 */
export type WaitPhase = 'queued' | 'attach' | 'write';

/** Result of a wait. `ended`: the sandbox or its claims ended before all devices were ready. */
export type WaitResult = 'ready' | 'ended';

/** Waiting times by phase, ms; `total` is their sum. */
export type WaitTimes = Record<WaitPhase | 'total', number>;

export interface PodWaitOptions {
  clock: Clock;
  /** Called when a pod no longer waits for its VFs. Not called if they were already attached when the driver started. */
  onWaited: (result: WaitResult, times: WaitTimes) => void;
}

/** Measures how long a pod waits for its devices, from the start of its sandbox. */
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

  /** Begins to measure a wait, unless the pod already waits. */
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

  /** Records that the wait is slow. @returns `true` at the first call of a wait */
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
   * Returns steps that also record the phases of the wait as devices are attached.
   * @param waits functions to call when only addresses from routers are missing
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
