import type { Clock } from '../../lib/clock.ts';
import { shared } from '../../lib/shared.ts';
import { NetlinkError, type VfInfo, type VfInfoAccess } from '../netlink/index.ts';
import { UnknownVfStateError } from './errors.ts';

/**
 * How long a VF may be missing in its PF's list, or have an old value there, before that counts: cards reset a VF within a
 * second.
 */
const settlesMs = 2_000;
const pollMs = 100;
/** How long one list serves all VFs of a PF whose metadata is read: in a round, each pod requests its own. */
const recentMs = 200;
/** Pause after a PF was waited for in vain to report VFs, before it is waited for again, ms. */
const silentMs = 30_000;

/** Reads the lists in which PFs report their VFs. */
export class PfLists {
  readonly #host: VfInfoAccess;
  readonly #clock: Clock;
  /** Recent lists, by the index of the PF's interface. */
  readonly #recent = new Map<number, () => Promise<VfInfo[]>>();
  /** End of the pause of each PF that has stopped reporting its VFs, by its PCI address. */
  readonly #silentUntilMs = new Map<string, number>();

  constructor(host: VfInfoAccess, clock: Clock) {
    this.#host = host;
    this.#clock = clock;
  }

  /**
   * @param isRecent whether a recently read list suffices: only for callers that decide nothing by it
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

  /** Drops recent lists. Call it after a change of a VF. */
  changed(index: number): void {
    this.#recent.delete(index);
  }

  /**
   * Polls until `isDone` accepts the answer, or time is up. A PF that has stopped reporting is waited for once, not for
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
