import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { DeviceProgress } from '../model/index.ts';

export interface PrepareProgressOptions {
  driver: string;
  clock: Clock;
  /**
   * Called when a call is slow, and not again for the same claims until they are prepared. @param progress progress of the
   * call, with the current device
   */
  onSlow: (claim: AllocatedClaim, progress: string) => void;
}

/** Progress of the kubelet's prepare calls. All claims of a call belong to one pod. */
export class PrepareProgress {
  readonly #options: PrepareProgressOptions;
  /** UIDs of claims whose slow preparation was reported. */
  readonly #waiting = new Set<string>();

  constructor(options: PrepareProgressOptions) {
    this.#options = options;
  }

  begin(claims: readonly AllocatedClaim[]): DeviceProgress<AllocatedClaim> {
    const { driver, clock, onSlow } = this.#options;
    const all = claims.flatMap(({ results }) => results);
    return new DeviceProgress({
      work: 'prepared',
      total: all.filter((result) => result.driver === driver && result.adminAccess !== true).length,
      clock,
      onSlow: (claim, progress) => {
        const uids = claims.map(({ identity }) => identity.uid);
        const isKnown = uids.some((uid) => this.#waiting.has(uid));
        for (const uid of uids) this.#waiting.add(uid);
        if (!isKnown) onSlow(claim, progress);
      },
    });
  }

  /** Forgets a claim that is prepared or deleted. */
  end(claimUid: string): void {
    this.#waiting.delete(claimUid);
  }
}
