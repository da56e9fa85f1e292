import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import type { ConditionReading, FunctionCondition } from '../../node/inventory/index.ts';
import { StateError, type StoredCondition } from '../model/index.ts';
import type { Store } from '../state/index.ts';

/** Shortest and longest time that a condition must be over before its end is reported, ms. The time doubles with each flap. */
const holdMs = { first: 10_000, longest: 640_000 };
/** Time for which the flaps of an ended condition are remembered, ms. */
const forgetMs = 1_800_000;

export interface ConditionHistoryOptions {
  store: Pick<Store, 'conditions' | 'putCondition' | 'deleteCondition'>;
  /** Wall clock: the stored times are compared across restarts. */
  now: () => Date;
  logger: Logger;
}

/** A condition that is in force. */
export type ActiveCondition = StoredCondition & { sinceMs: number };

/**
 * The conditions in force. A condition begins with its first reading, and ends when it has been over for some time: a
 * flapping link then changes little for the scheduler. Everything is in the store, so a restart neither ends a condition nor
 * forgets its flaps, and two instances publish the same. Decision: docs/decisions/0035-devices-that-say-they-are-broken.md
 */
export class ConditionHistory {
  readonly #options: ConditionHistoryOptions;
  /** Conditions by subject and name. */
  #entries = new Map<string, StoredCondition>();
  /** Changes that the store has not accepted yet, by subject and name; `undefined`: the entry is to be deleted. */
  readonly #unstored = new Map<string, StoredCondition | undefined>();
  #failure: string | undefined;

  constructor(options: ConditionHistoryOptions) {
    this.#options = options;
  }

  /** Conditions in force as of the last {@link observe}. */
  get active(): readonly ActiveCondition[] {
    return [...this.#entries.values()].filter((entry): entry is ActiveCondition => entry.sinceMs !== undefined);
  }

  /**
   * Updates the conditions from readings and the time.
   * @param readings a condition without a reading is unknown and stays as it was
   * @param subjects PCI addresses of all functions that can have conditions; conditions of other functions end. Absent: the
   * list is incomplete, and no condition ends for that reason
   * @returns whether the conditions in force have changed
   * @throws StateError `store-unusable` if the store cannot be read
   */
  observe(readings: readonly ConditionReading[], subjects?: ReadonlySet<string>): boolean {
    const before = this.#fingerprint();
    this.#read();
    const nowMs = this.#options.now().getTime();
    for (const { isPresent, isSilent: _isSilent, ...reading } of readings) this.#follow(reading, isPresent, nowMs);
    for (const entry of this.#entries.values()) {
      if (subjects !== undefined && !subjects.has(entry.pciAddress)) this.#follow(entry, false, nowMs);
    }
    for (const entry of this.#entries.values()) this.#age(entry, nowMs);
    return this.#fingerprint() !== before;
  }

  #read(): void {
    this.#entries = new Map(this.#options.store.conditions().map((entry) => [keyOf(entry), entry]));
    for (const [key, entry] of this.#unstored) this.#set(key, entry);
  }

  #follow(seen: FunctionCondition, isPresent: boolean, nowMs: number): void {
    const known = this.#entries.get(keyOf(seen));
    if (!isPresent) {
      if (known !== undefined && known.overMs === undefined) this.#put({ ...known, overMs: nowMs });
    } else if (known === undefined) {
      this.#begin({ ...seen, sinceMs: nowMs, holdMs: holdMs.first });
    } else if (known.overMs !== undefined) {
      const { overMs: _over, sinceMs = nowMs, ...rest } = known;
      const next = { ...rest, ...seen, sinceMs, holdMs: Math.min(2 * known.holdMs, holdMs.longest) };
      if (known.sinceMs === undefined) this.#begin(next);
      else this.#put(next);
    }
  }

  #begin(entry: StoredCondition): void {
    this.#options.logger.warn(factsOf(entry), 'device condition started');
    this.#put(entry);
  }

  #age(entry: StoredCondition, nowMs: number): void {
    const { overMs, sinceMs, ...rest } = entry;
    if (overMs === undefined) return;
    // The wall clock was set back.
    if (overMs > nowMs) this.#put({ ...entry, overMs: nowMs });
    else if (sinceMs !== undefined && nowMs - overMs >= entry.holdMs) {
      this.#options.logger.info(factsOf(entry), 'device condition ended');
      this.#put({ ...rest, overMs: nowMs });
    } else if (sinceMs === undefined && nowMs - overMs >= forgetMs) this.#set(keyOf(entry), undefined);
  }

  #put(entry: StoredCondition): void {
    this.#set(keyOf(entry), entry);
  }

  /**
   * Sets or deletes an entry, here and in the store. Conditions are in force even if the store does not accept the change.
   * @param entry `undefined`: deletes the entry
   */
  #set(key: string, entry: StoredCondition | undefined): void {
    const { store, logger } = this.#options;
    const known = this.#entries.get(key);
    if (entry === undefined) this.#entries.delete(key);
    else this.#entries.set(key, entry);
    try {
      if (entry !== undefined) store.putCondition(entry);
      else if (known !== undefined) store.deleteCondition(known);
      this.#unstored.delete(key);
      this.#failure = undefined;
    } catch (error) {
      if (!(error instanceof StateError)) throw error;
      this.#unstored.set(key, entry);
      const reason = explain(error);
      if (reason !== this.#failure) logger.warn({ err: error }, 'cannot store a device condition');
      this.#failure = reason;
    }
  }

  #fingerprint(): string {
    return JSON.stringify(this.active.map((entry) => [keyOf(entry), entry.sinceMs]));
  }
}

function factsOf({ condition, kind, pciAddress: device, interfaceName }: StoredCondition) {
  return { condition, kind, device, ...defined({ interfaceName }) };
}

function keyOf({ pciAddress, condition }: FunctionCondition): string {
  return `${pciAddress} ${condition}`;
}
