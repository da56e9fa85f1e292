/**
 * Random numbers that depend only on the seed: Chris Doty-Humphrey's sfc32. `Math.random` could not be replayed.
 */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number, stream = '') {
    this.#a = seed | 0;
    this.#b = (seed / 2 ** 32) | 0;
    this.#c = 0;
    for (const character of stream) this.#c = (Math.imul(this.#c, 31) + character.charCodeAt(0)) | 0;
    for (let warmUp = 0; warmUp < 16; warmUp++) this.#next();
  }

  /** An integer from 0 up to, but not including, `bound`. */
  below(bound: number): number {
    return Math.floor((this.#next() / 2 ** 32) * bound);
  }

  /** True in one of this many cases. */
  oneIn(cases: number): boolean {
    return this.below(cases) === 0;
  }

  pick<T>(list: readonly T[]): T {
    if (list.length === 0) throw new RangeError('nothing to pick from');
    return list[this.below(list.length)] as T;
  }

  /** From 1 to `max`, small numbers far more often than large ones. */
  size(max: number): number {
    return 1 + this.below(Math.min(max, 2 ** this.below(1 + Math.ceil(Math.log2(max + 1)))));
  }

  #next(): number {
    const sum = (this.#a + this.#b + this.#counter++) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    this.#c |= 0;
    return sum >>> 0;
  }
}
