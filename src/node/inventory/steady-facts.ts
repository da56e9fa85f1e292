import type { NetworkDevice } from './device.ts';

/** Number of scans without a change after which a volatile fact counts as steady. */
const steadyScans = 20;

/** Facts that a kernel driver may choose anew whenever it is bound to a VF. */
const facts = ['hardwareAddress', 'mtuBytes'] as const;
type Fact = (typeof facts)[number];

interface Seen {
  value: string | number;
  /** Number of scans since the fact changed. */
  unchanged: number;
  /** Whether the fact changed again before it was steady. */
  isVolatile: boolean;
}

/**
 * Leaves out facts that keep changing. A VF without an administrative MAC gets a new one whenever a driver is bound to it;
 * each would cause a new version of the slices, which is outdated as soon as it is written. A single change is reported at
 * once.
 */
export class SteadyFacts {
  #known: ReadonlyMap<string, Seen> = new Map();
  #next = new Map<string, Seen>();

  /** Begins a scan: forgets devices that the last scan has not found. Must be called before each scan. */
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

  /** Keeps the known facts of a claimed device for the next scan. */
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
