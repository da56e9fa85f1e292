import fc from 'fast-check';
import type { Clock, Deadline } from '../../src/lib/clock.ts';
import { intercept } from '../../src/lib/intercept.ts';
import { whileBusy } from '../../src/lib/while-busy.ts';
import { isBusy } from '../../src/node/netlink/errors.ts';
import { NetlinkError, type VfChange } from '../../src/node/netlink/index.ts';
import { DriverBinding, VfHardware } from '../../src/node/sriov/index.ts';
import { pfAddress, SriovCard, type SriovCardOptions, vfAddress } from './sriov-card.ts';

/** Jumps to the end of each sleep, and does what is due until then. */
export class JumpingClock implements Clock {
  #nowMs = 0;
  #due: { atMs: number; task: () => void }[] = [];

  nowMs(): number {
    return this.#nowMs;
  }

  after(ms: number, task: () => void): void {
    this.#due.push({ atMs: this.#nowMs + ms, task });
    this.#due.sort((one, other) => one.atMs - other.atMs);
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.#nowMs += ms;
    while (this.#due[0] !== undefined && this.#due[0].atMs <= this.#nowMs) this.#due.shift()?.task();
  }

  deadline(): Deadline {
    throw new Error('nothing that uses this clock has a deadline');
  }
}

/** What a card does when it is asked for something that it could do. */
export interface Refusals {
  errno: 'EAGAIN' | 'EBUSY' | 'EOPNOTSUPP' | 'EINVAL';
  /** After these it does what it is asked for. */
  times: number;
}

/**
 * How a card and its drivers differ from one that answers at once, completely and successfully. Each knob is the
 * behaviour of a real driver: docs/hardware.md. Times are milliseconds.
 */
export interface Quirks {
  /** How long the PF's list lacks a VF, from the start and after each bind: ice resets VFs. */
  leftOutMs: number;
  /** How long, from the start, the PF's VFs cannot be listed. */
  listFails: { errno: 'EMSGSIZE' | 'ENOBUFS' | 'EAGAIN'; ms: number };
  /** How long, from the start, the PF has no interface: it recovers from an error. */
  pfGoneMs: number;
  /** Properties that the PF refuses to set. */
  refusals: Partial<Record<keyof VfChange, Refusals>>;
  /** Properties that the PF accepts without effect. */
  ignored: (keyof VfChange)[];
  /** After which time the other properties take effect. */
  takesEffectMs: number;
  /** What the VF's own driver refuses. */
  linkRefusals: Refusals;
  /** How long after a bind the interface appears. */
  linkAppearsMs: number;
  /** How long after that udev renames it. */
  renamedMs: number;
  /** So many binds leave the function without a driver. */
  failedProbes: number;
}

export const calm: Quirks = {
  leftOutMs: 0,
  listFails: { errno: 'ENOBUFS', ms: 0 },
  pfGoneMs: 0,
  refusals: {},
  ignored: [],
  takesEffectMs: 0,
  linkRefusals: { errno: 'EBUSY', times: 0 },
  linkAppearsMs: 0,
  renamedMs: 0,
  failedProbes: 0,
};

const properties = ['hardwareAddress', 'vlan', 'spoofCheck', 'trust', 'linkState', 'rate'] as const;
const oftenZero = (max: number) => fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max }));
const each = <T>(value: fc.Arbitrary<T>) =>
  fc.dictionary(fc.constantFrom(...properties), value, { maxKeys: 3, noNullPrototype: true });

/** Quirks that end within a second or two, so that the caller need not know of them. */
export const passingQuirks: fc.Arbitrary<Quirks> = fc.record({
  leftOutMs: oftenZero(1_500),
  listFails: fc.record({ errno: fc.constantFrom('ENOBUFS' as const, 'EAGAIN' as const), ms: oftenZero(1_500) }),
  pfGoneMs: fc.constant(0),
  refusals: each(
    fc.record({ errno: fc.constantFrom('EAGAIN' as const, 'EBUSY' as const), times: fc.integer({ min: 1, max: 3 }) }),
  ),
  ignored: fc.constant([]),
  takesEffectMs: oftenZero(1_500),
  linkRefusals: fc.record({ errno: fc.constantFrom('EAGAIN' as const, 'EBUSY' as const), times: oftenZero(3) }),
  linkAppearsMs: oftenZero(4_000),
  renamedMs: oftenZero(500),
  failedProbes: fc.constant(0),
});

/** Also those that last longer than anybody waits. */
export const allQuirks: fc.Arbitrary<Quirks> = fc.record({
  leftOutMs: oftenZero(60_000),
  listFails: fc.record({
    errno: fc.constantFrom('EMSGSIZE' as const, 'ENOBUFS' as const, 'EAGAIN' as const),
    ms: oftenZero(60_000),
  }),
  pfGoneMs: oftenZero(60_000),
  refusals: each(
    fc.record({
      errno: fc.constantFrom('EAGAIN' as const, 'EBUSY' as const, 'EOPNOTSUPP' as const, 'EINVAL' as const),
      times: fc.integer({ min: 1, max: 1_000 }),
    }),
  ),
  ignored: fc.subarray([...properties], { maxLength: 2 }),
  takesEffectMs: oftenZero(60_000),
  linkRefusals: fc.record({
    errno: fc.constantFrom('EAGAIN' as const, 'EBUSY' as const, 'EOPNOTSUPP' as const, 'EINVAL' as const),
    times: oftenZero(1_000),
  }),
  linkAppearsMs: oftenZero(60_000),
  renamedMs: oftenZero(5_000),
  failedProbes: oftenZero(3),
});

/** How the driver of the test makes requests; by default as it does. */
export interface Habits {
  /** Makes a request that the card may refuse only for the moment. */
  repeat?: typeof whileBusy;
  /** Whether it waits for anything. */
  hasPatience?: boolean;
}

/** VfHardware with a card that has quirks, in a time of its own. */
export class QuirkyCard implements Disposable {
  readonly card: SriovCard;
  readonly clock = new JumpingClock();
  readonly hardware: VfHardware;
  readonly #boundAtMs = new Map<number, number>();
  #quirks: Quirks;

  constructor(quirks: Quirks, options: SriovCardOptions, { repeat = whileBusy, hasPatience = true }: Habits = {}) {
    this.card = new SriovCard(options);
    this.#quirks = structuredClone(quirks);
    this.#setFailingProbes();
    for (const vfIndex of [0, 1]) Object.assign(this.card.link(vfIndex) ?? {}, { name: nameByUdev(vfIndex) });
    this.#leaveOut(0);
    const time = hasPatience ? this.clock : hurried;
    this.hardware = new VfHardware({
      binding: new DriverBinding(this.card.root, (path, text) => this.#write(path, text), time),
      host: intercept(this.#host(), ({ next }) => repeat(this.clock, isBusy, next as () => Promise<unknown>)),
      ethtool: this.card.ethtool,
      clock: time,
    });
  }

  /** From now on the card has no quirks, and nothing is under way. */
  async calmDown(): Promise<void> {
    await this.clock.sleep(120_000);
    this.#quirks = structuredClone(calm);
    this.#setFailingProbes();
  }

  [Symbol.dispose](): void {
    this.card[Symbol.dispose]();
  }

  async #write(path: string, text: string): Promise<void> {
    const done = this.card.log.length;
    await this.card.write(path, text);
    if (path.endsWith('drivers_probe') && this.#quirks.failedProbes > 0) {
      this.#quirks.failedProbes -= 1;
      this.#setFailingProbes();
    }
    for (const [, address] of this.card.log.slice(done).map((line) => line.split(' '))) {
      if (address !== undefined) this.#onBind(Number(address.at(-1)));
    }
  }

  #setFailingProbes(): void {
    const { failingDrivers } = this.card;
    if (this.#quirks.failedProbes === 0) failingDrivers.clear();
    else for (const driver of ['igbvf', 'vfio-pci']) failingDrivers.add(driver);
  }

  #onBind(vfIndex: number): void {
    const { linkAppearsMs, renamedMs } = this.#quirks;
    const { card, clock } = this;
    this.#boundAtMs.set(vfIndex, clock.nowMs());
    this.#leaveOut(vfIndex);
    if (renamedMs === 0) return;
    const made = card.link(vfIndex);
    clock.after(linkAppearsMs + renamedMs, () => {
      const link = card.link(vfIndex);
      // udev keeps a name that something else has given by then.
      const isNew = link !== undefined && link.index === made?.index && /^eth\d+$/.test(link.name);
      if (isNew && !link.up) link.name = nameByUdev(vfIndex);
    });
  }

  #leaveOut(vfIndex: number): void {
    const { leftOutMs } = this.#quirks;
    if (leftOutMs === 0) return;
    this.card.leftOut.add(vfIndex);
    this.clock.after(leftOutMs, () => this.card.leftOut.delete(vfIndex));
  }

  #isHidden(parentDevice: string | undefined): boolean {
    const nowMs = this.clock.nowMs();
    if (parentDevice === pfAddress) return nowMs < this.#quirks.pfGoneMs;
    const vfIndex = [0, 1].find((index) => vfAddress(index) === parentDevice) ?? -1;
    return nowMs < (this.#boundAtMs.get(vfIndex) ?? Number.NEGATIVE_INFINITY) + this.#quirks.linkAppearsMs;
  }

  #host(): SriovCard['host'] {
    const { host } = this.card;
    return {
      ...host,
      links: async () => (await host.links()).filter(({ parentDevice }) => !this.#isHidden(parentDevice)),
      vfInfos: async (pf) => {
        const { errno, ms } = this.#quirks.listFails;
        if (this.clock.nowMs() < ms) throw refusal(errno);
        return await host.vfInfos(pf);
      },
      setVf: async (pf, vfIndex, change) => {
        for (const property of Object.keys(change) as (keyof VfChange)[]) refuse(this.#quirks.refusals[property]);
        const isIgnored = Object.keys(change).some((each) => this.#quirks.ignored.includes(each as keyof VfChange));
        if (isIgnored) return;
        const { takesEffectMs } = this.#quirks;
        if (takesEffectMs === 0) return await host.setVf(pf, vfIndex, change);
        // A firmware that is busy with the reset by then drops it.
        this.clock.after(takesEffectMs, () => void host.setVf(pf, vfIndex, change).catch(() => undefined));
      },
      setLink: async (index, change) => {
        refuse(this.#quirks.linkRefusals);
        await host.setLink(index, change);
      },
    };
  }
}

/** Every deadline is over when it is looked at. */
const hurried: Clock = Object.assign(new JumpingClock(), {
  lastMs: 0,
  nowMs() {
    this.lastMs += 1e9;
    return this.lastMs;
  },
});

function nameByUdev(vfIndex: number): string {
  return `enp1s16v${vfIndex}`;
}

function refuse(refusals: Refusals | undefined): void {
  if (refusals === undefined || refusals.times === 0) return;
  refusals.times -= 1;
  throw refusal(refusals.errno);
}

function refusal(errno: string): NetlinkError {
  const retriable = ['EAGAIN', 'EBUSY', 'ENOBUFS'].includes(errno);
  return new NetlinkError('netlink-refused', `the card refuses that (${errno})`, { errno, retriable });
}
