import type { NetworkDevice } from './device.ts';

/** Scans without a change after which a volatile fact counts as steady. */
const steadyScans = 20;

/** Facts that a kernel driver may choose anew whenever it is bound to a VF. */
const facts = ['hardwareAddress', 'mtuBytes'] as const;
type Fact = (typeof facts)[number];

interface Seen {
  value: string | number;
  /** Number of scans since it changed. */
  unchanged: number;
  /** Whether it changed again before it was steady. */
  isVolatile: boolean;
}

/**
 * Leaves out facts that keep changing: a VF without an administrative MAC gets another one whenever it is bound, and each
 * would make a new version of the slices, outdated as soon as it is written. A single change is reported at once.
 */
export class SteadyFacts {
  #known: ReadonlyMap<string, Seen> = new Map();
  #next = new Map<string, Seen>();

  /** Forgets devices that the last scan has not found. Call it before each scan. */
  begin(): void {
    this.#known = this.#next;
    this.#next = new Map();
  }

  /** Records the facts of an unclaimed device. @returns the device without its volatile facts */
  settle<T extends Pick<NetworkDevice, 'pciAddress' | Fact>>(device: T): T {
    const settled = { ...device };
    for (const fact of facts) {
      const value = device[fact];
      const key = `${device.pciAddress} ${fact}`;
      const seen = value === undefined ? this.#known.get(key) : follow(this.#known.get(key), value);
      if (seen === undefined) continue;
      this.#next.set(key, seen);
      if (seen.isVolatile) delete settled[fact];
    }
    return settled;
  }

  /** Keeps the earlier facts of a claimed device. */
  keep(pciAddress: string): void {
    for (const fact of facts) {
      const key = `${pciAddress} ${fact}`;
      const seen = this.#known.get(key);
      if (seen !== undefined) this.#next.set(key, seen);
    }
  }
}

function follow(seen: Seen | undefined, value: Seen['value']): Seen {
  if (seen === undefined) return { value, unchanged: steadyScans, isVolatile: false };
  const isSteady = seen.unchanged >= steadyScans;
  if (seen.value !== value) return { value, unchanged: 0, isVolatile: !isSteady };
  return { value, unchanged: seen.unchanged + 1, isVolatile: seen.isVolatile && !isSteady };
}
