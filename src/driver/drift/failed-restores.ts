import { pauseMs } from '../../lib/backoff.ts';
import { pauses } from '../../lib/waiting-times.ts';
import type { PfDrift } from './drift.ts';
import type { DriftState } from './drift-record.ts';

interface PausedSetting {
  /** Number of consecutive failures to restore the setting. */
  failures: number;
  nextAttemptMs: number;
  reason: string;
}

/**
 * Failed attempts to restore settings of one VF. Each setting has a pause of its own, so that a setting that the PF keeps
 * rejecting does not delay the others.
 */
export class FailedRestores {
  readonly #failures = new Map<string, PausedSetting>();

  /** Returns whether the pause after the last failure of a setting is over. */
  isDue({ setting }: PfDrift, nowMs: number): boolean {
    return nowMs >= (this.#failures.get(setting)?.nextAttemptMs ?? 0);
  }

  add(failed: readonly PfDrift[], nowMs: number, reason: string): void {
    for (const { setting } of failed) {
      const failures = this.#failures.get(setting)?.failures ?? 0;
      const nextAttemptMs = nowMs + pauseMs(failures, pauses.drift);
      this.#failures.set(setting, { failures: failures + 1, nextAttemptMs, reason });
    }
  }

  /** Forgets the failures of all settings but those that are still lost. */
  retain(lost: readonly PfDrift[]): void {
    const settings = new Set<string>(lost.map(({ setting }) => setting));
    for (const setting of this.#failures.keys()) if (!settings.has(setting)) this.#failures.delete(setting);
  }

  /** Returns lost settings with the reasons why restoring them failed. */
  stateOf(lost: readonly PfDrift[]): DriftState | undefined {
    const reasons = new Set(lost.flatMap(({ setting }) => this.#failures.get(setting)?.reason ?? []));
    return lost.length === 0 ? undefined : { drifts: lost, reason: [...reasons].join('; ') };
  }
}
