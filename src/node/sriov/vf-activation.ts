import { once } from 'node:events';
import type { Clock } from '../../lib/clock.ts';
import type { Pf, Sysfs } from './sysfs.ts';

/** Most cards need a few seconds. */
const waitMs = 10_000;

/**
 * Switches the VFs of PFs on. A card may take minutes, or hang: after a while the caller continues without its VFs, and
 * learns the outcome at a later call.
 */
export class VfActivation {
  readonly #sysfs: Pick<Sysfs, 'setNumVfs'>;
  readonly #clock: Clock;
  readonly #pending = new Set<string>();
  /** Failures of writes after the wait for them had ended, by PCI address. */
  readonly #failures = new Map<string, unknown>();

  constructor(sysfs: Pick<Sysfs, 'setNumVfs'>, clock: Clock) {
    this.#sysfs = sysfs;
    this.#clock = clock;
  }

  /** Whether the kernel is still switching VFs of the PF on. */
  isPending(pciAddress: string): boolean {
    return this.#pending.has(pciAddress);
  }

  /**
   * Waits a few seconds for the VFs.
   * @throws SriovError `sysfs-unwritable`, `device-hangs`, also of an earlier call
   */
  async switchOn(pf: Pf, numVfs: number): Promise<void> {
    const { pciAddress } = pf;
    if (this.#failures.has(pciAddress)) {
      const failure = this.#failures.get(pciAddress);
      this.#failures.delete(pciAddress);
      throw failure;
    }
    let isWaiting = true;
    using deadline = this.#clock.deadline(waitMs);
    this.#pending.add(pciAddress);
    const done = this.#sysfs
      .setNumVfs(pf, numVfs)
      .catch((error: unknown) => {
        if (isWaiting) throw error;
        this.#failures.set(pciAddress, error);
      })
      .finally(() => this.#pending.delete(pciAddress));
    await Promise.race([done, once(deadline.signal, 'abort')]);
    isWaiting = false;
  }
}
