import type { Clock } from '../../lib/clock.ts';
import { shared } from '../../lib/shared.ts';
import { NetlinkError, type VfInfo, type VfInfoAccess } from '../netlink/index.ts';
import { UnknownVfStateError } from './errors.ts';

/**
 * How long a VF may be missing from its PF's list, or have an old value in it, before that counts, ms: cards reset a VF
 * within a second.
 */
const settlesMs = 2_000;
const pollMs = 100;
/** How long one list is reused for all VFs of a PF whose metadata is read, ms: in a round, each pod requests its own. */
const recentMs = 200;
/** Pause after a PF did not report VFs in time, before the driver waits for it again, ms. */
const silentMs = 30_000;

/** Reads the lists in which PFs report their VFs. */
export class PfLists {
  readonly #host: VfInfoAccess;
  readonly #clock: Clock;
  /** Recent lists, by index of the PF's interface. */
  readonly #recent = new Map<number, () => Promise<VfInfo[]>>();
  /** End of the pause of each PF that has stopped reporting its VFs, by PCI address. */
  readonly #silentUntilMs = new Map<string, number>();

  constructor(host: VfInfoAccess, clock: Clock) {
    this.#host = host;
    this.#clock = clock;
  }

  /**
   * Reads the list of a PF. @param isRecent whether a recently read list is good enough: only if no decision depends on it
   * @throws UnknownVfStateError
   */
  async read(
    { index }: { index: number },
    place: Parameters<typeof UnknownVfStateError.unreadable>[0],
    isRecent = false,
  ): Promise<VfInfo[]> {
    try {
      return await (isRecent ? this.#recentList(index)() : this.#host.vfInfos(index));
    } catch (cause) {
      if (cause instanceof NetlinkError) throw UnknownVfStateError.unreadable(place, cause);
      throw cause;
    }
  }

  /** Drops the recent list of a PF. Must be called after a change of a VF. */
  changed(index: number): void {
    this.#recent.delete(index);
  }

  /**
   * Polls until `isDone` accepts the answer, or time is up. If a PF has stopped reporting, waits for it only once, not for
   * each of its VFs.
   * @throws UnknownVfStateError
   */
  async poll<T>(
    { pfAddress = '' }: { pfAddress?: string },
    ask: () => Promise<T>,
    isDone: (answer: T) => boolean = () => true,
  ): Promise<T> {
    const isSilent = this.#clock.nowMs() < (this.#silentUntilMs.get(pfAddress) ?? 0);
    for (const endsAt = this.#clock.nowMs() + settlesMs; ; await this.#clock.sleep(pollMs)) {
      const isLast = this.#clock.nowMs() >= endsAt;
      try {
        const answer = await ask();
        this.#silentUntilMs.delete(pfAddress);
        if (isLast || isDone(answer)) return answer;
      } catch (error) {
        if (!(error instanceof UnknownVfStateError && error.mayPass)) throw error;
        const isOfPf = error.reportsNone || error.cause !== undefined;
        if (isLast && isOfPf) this.#silentUntilMs.set(pfAddress, this.#clock.nowMs() + silentMs);
        if (isLast || (isSilent && isOfPf)) throw error;
      }
    }
  }

  #recentList(index: number): () => Promise<VfInfo[]> {
    const kept = { ms: recentMs, clock: this.#clock };
    const list = this.#recent.get(index) ?? shared(() => this.#host.vfInfos(index), kept);
    this.#recent.set(index, list);
    return list;
  }
}
