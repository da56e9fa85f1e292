import type { NetworkNamespace, Networks } from '../../../../src/driver/vf/networks.ts';
import type { ManualClock } from '../../../doubles/manual-clock.ts';

/** Network namespaces of which only their existence matters. */
export class FakeNetworks implements Networks {
  readonly host = {} as Networks['host'];
  readonly paths: Set<string>;
  /** Paths of which it is known that nothing is there. */
  readonly gone = new Set<string>();
  isHost = false;
  identity = 'one';
  /** How often a namespace was opened, how many are open now, and how many are watched. */
  opened = 0;
  open_ = 0;
  watches = 0;
  #onChange: () => void = () => undefined;

  constructor(...paths: string[]) {
    this.paths = new Set(paths);
  }

  open(path: string): NetworkNamespace | undefined {
    if (!this.paths.has(path)) return undefined;
    this.opened++;
    this.open_++;
    return {
      netns: { path, fd: 0 },
      connection: {} as NetworkNamespace['connection'],
      isHost: this.isHost,
      identity: this.identity,
      writeSysctls: async () => [],
      readSysctls: () => new Map(),
      // No driver here has such settings.
      ethtool: { apply: async () => undefined, effective: async () => ({}) },
      packets: () => ({ send: () => undefined, receive: () => undefined, [Symbol.dispose]: () => undefined }),
      watch: (onChange) => {
        this.watches++;
        this.#onChange = onChange;
        return { [Symbol.dispose]: () => void this.watches-- };
      },
      [Symbol.dispose]: () => void this.open_--,
    };
  }

  isGone(path: string): boolean {
    return this.gone.has(path);
  }

  isStill(identity: string, path: string): boolean {
    return this.paths.has(path) && this.identity === identity;
  }

  list(): string[] {
    return [...this.paths];
  }

  /** A link or an address changes. */
  change(): void {
    this.#onChange();
  }
}

/** Lets all work go on that waits for nothing but its turn. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await Promise.resolve();
}

/** Lets time pass, and all work go on that waits for nothing else, before and after. */
export async function pass(clock: ManualClock, ms: number): Promise<void> {
  await turns();
  clock.advance(ms);
  await turns();
}
