import { setTimeout } from 'node:timers/promises';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** What may stay behind in all, over any number of inputs: caches, the corpus, compiled code. */
const maxGrowthBytes = 64 * 1024 * 1024;

/** How often garbage is collected before what is left counts as kept. */
const maxRounds = 5;
const roundMs = 20;

/** Tells whether inputs leave something behind in memory. */
export class HeapGuard {
  readonly #collect: () => void;
  #limitBytes = Number.POSITIVE_INFINITY;

  constructor() {
    setFlagsFromString('--expose-gc');
    this.#collect = runInNewContext('gc');
  }

  begin(): void {
    this.#collect();
    this.#limitBytes = usedBytes() + maxGrowthBytes;
  }

  /** @returns what is wrong; `undefined` if all is well. Collects garbage only when there is a lot in memory. */
  async check(): Promise<string | undefined> {
    for (let round = 0; usedBytes() > this.#limitBytes && round < maxRounds; round++) {
      this.#collect();
      // Buffers are given back beside, and counted as such only when the thread has had a turn.
      await setTimeout(roundMs);
    }
    const excessBytes = usedBytes() - this.#limitBytes;
    if (excessBytes <= 0) return undefined;
    const growthMiB = Math.round((excessBytes + maxGrowthBytes) / 2 ** 20);
    this.begin();
    return `${growthMiB} MiB more in memory than at the beginning, after garbage collection`;
  }
}

/** The heap of this thread, and what its buffers have outside of it. */
function usedBytes(): number {
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return heap + external;
}
