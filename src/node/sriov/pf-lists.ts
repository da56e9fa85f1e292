import type { Clock } from '../../lib/clock.ts';
import { shared } from '../../lib/shared.ts';
import { NetlinkError, type VfInfo, type VfInfoAccess } from '../netlink/index.ts';
import { UnknownVfStateError } from './errors.ts';

/**
 * How long a VF may be missing in its PF's list, or have an old value there, until that counts: cards reset a VF within a
 * second.
 */
const settlesMs = 2_000;
const pollMs = 100;
/** For how long one list serves all VFs of a PF whose metadata is read: in a round, each pod asks for its own. */
const recentMs = 200;
/** Time after a fruitless wait for a PF to report VFs, in which the PF is not waited for again, in ms. */
const silentMs = 30_000;

/** Reads the lists in which PFs report their VFs. */
export class PfLists {
  readonly #host: VfInfoAccess;
  readonly #clock: Clock;
  /** By the index of the PF's interface. */
  readonly #recent = new Map<number, () => Promise<VfInfo[]>>();
  /** By the PCI address of a PF that has stopped reporting its VFs. */
  readonly #silentUntilMs = new Map<string, number>();

  constructor(host: VfInfoAccess, clock: Clock) {
    this.#host = host;
    this.#clock = clock;
  }

  /**
   * @param isRecent whether a list that was read a moment ago will do, since no decision depends on it
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

  /** To be called after a change of a VF, so that a list from before it is not used any more. */
  changed(index: number): void {
    this.#recent.delete(index);
  }

  /**
   * Asks until the answer is as it should be, or for a while. A PF that has stopped reporting is waited for once, not for each of its
   * VFs.
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
