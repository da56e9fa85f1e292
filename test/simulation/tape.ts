import { Random } from './random.ts';

/** Choices are numbers from 0 up to, but not including, this one. 0 is the ordinary case of every choice. */
const bound = 65_536;

/**
 * The subject of a choice. With a seed, each kind has its own generator: if the code makes one more call, the delays
 * change, but the faults of the schedule stay.
 */
export type ChoiceKind =
  | 'plan'
  | 'more'
  | 'CDI'
  | 'delay'
  | 'kernel'
  | 'card'
  | 'cni'
  | 'api'
  | 'reads'
  | 'numvfs'
  | 'numa'
  | 'cable'
  | 'bond'
  | 'lacp'
  | 'guarantee'
  | 'slow'
  | 'lock'
  | 'name'
  | 'end'
  | 'vf'
  | 'dad'
  | 'router'
  | 'back'
  | 'several'
  | 'once'
  | 'turn'
  | 'rounds'
  | 'start'
  | 'boot'
  | 'again'
  | 'route'
  | 'late'
  | 'kept'
  | 'inside'
  | 'stale'
  | 'skip'
  | 'others'
  | 'vrf'
  | 'pool';

/**
 * The source of every decision of a schedule: which fault, which delay, which order. A schedule is a function of its tape
 * alone, so a tape replays it, and a tape with fewer or smaller numbers is a simpler schedule. Past its end are zeros.
 */
export class Tape {
  readonly #read: (position: number, kind: ChoiceKind) => number;
  readonly #taken: number[] = [];
  /** Share of slow delays. */
  slowShare = 0.1;
  /** Share of answers that need no time at all. */
  instantShare = 0;

  private constructor(read: (position: number, kind: ChoiceKind) => number) {
    this.#read = read;
  }

  static ofSeed(seed: number): Tape {
    const generators = new Map<ChoiceKind, Random>();
    return new Tape((_, kind) => {
      let random = generators.get(kind);
      if (random === undefined) {
        random = new Random(seed, kind);
        generators.set(kind, random);
      }
      return random.below(bound);
    });
  }

  static of(values: readonly number[]): Tape {
    return new Tape((position) => values[position] ?? 0);
  }

  /** The choices read so far. */
  get taken(): readonly number[] {
    return this.#taken;
  }

  /** From 0 up to, but not including, 1; 0 is the ordinary case. */
  fraction(kind: ChoiceKind = 'plan'): number {
    const value = this.#read(this.#taken.length, kind);
    this.#taken.push(value);
    return value / bound;
  }

  /** An integer from 0 up to, but not including, `cases`. */
  below(cases: number, kind: ChoiceKind = 'plan'): number {
    return Math.floor(this.fraction(kind) * cases);
  }

  /** Whether an event of this probability happens; at probability 0 nothing is read. */
  chance(probability: number, kind: ChoiceKind = 'plan'): boolean {
    return probability > 0 && this.fraction(kind) >= 1 - probability;
  }

  /** The first entry is the ordinary one. */
  pick<T>(list: readonly [T, ...T[]], kind: ChoiceKind = 'plan'): T {
    return list[this.below(list.length, kind)] ?? list[0];
  }

  /** The first entry is the ordinary one; the probability of each is its share of the sum of weights. */
  weighted<T>(
    list: readonly [readonly [weight: number, value: T], ...(readonly [number, T])[]],
    kind: ChoiceKind = 'plan',
  ): T {
    const sum = list.reduce((total, [weight]) => total + weight, 0);
    let rest = this.fraction(kind) * sum;
    for (const [weight, value] of list) {
      if (rest < weight) return value;
      rest -= weight;
    }
    return list[0][1];
  }

  /** The time of an answer that may be there before its caller waits for it: like `delay`, or 0. */
  answerDelay(usualMs: number, slowMs: number): number {
    return this.chance(this.instantShare, 'more') ? 0 : this.delay(usualMs, slowMs);
  }

  /** A time: `usualMs` in the ordinary case, mostly near it, occasionally up to `slowMs`. */
  delay(usualMs: number, slowMs: number): number {
    const value = this.fraction('delay');
    const usual = 1 - this.slowShare;
    if (value < usual) return usualMs * (1 + value);
    const slow = (value - usual) / this.slowShare;
    return usualMs * (slowMs / usualMs) ** slow;
  }
}
