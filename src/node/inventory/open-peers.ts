import type { Sysfs } from '../sriov/index.ts';
import type { HeldDevices } from './survey.ts';

/**
 * Programs' use of functions through vfio. Each function is read only once: without ACS, all VFs of a card can be in one
 * IOMMU group.
 */
export class OpenPeers {
  readonly #sysfs: Sysfs;
  readonly #held: HeldDevices;
  readonly #known = new Map<string, Promise<boolean>>();

  constructor(sysfs: Sysfs, held: HeldDevices) {
    this.#sysfs = sysfs;
    this.#held = held;
  }

  /**
   * Returns a member of a function's IOMMU group that a program has open although no claim has it. The program then keeps the
   * whole group to itself.
   */
  async of({ iommuPeers }: { iommuPeers: readonly string[] }): Promise<string | undefined> {
    for (const peer of iommuPeers) if (!this.#held.has(peer) && (await this.#isOpen(peer))) return peer;
    return undefined;
  }

  #isOpen(pciAddress: string): Promise<boolean> {
    const isOpen = this.#known.get(pciAddress) ?? this.#sysfs.isOpen(pciAddress);
    this.#known.set(pciAddress, isOpen);
    return isOpen;
  }
}
