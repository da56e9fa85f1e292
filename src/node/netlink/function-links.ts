import type { Link } from './link.ts';
import type { LinkFinder } from './link-access.ts';
import { findVf } from './network-state.ts';
import { isRepresentor } from './representor.ts';

/**
 * Finds the interfaces of PCI functions in one network namespace. It first asks for the link at the index where it last
 * found the interface: that answer is small, while the list of a large node has hundreds of links, and pods wait for it.
 */
export class FunctionLinks {
  readonly #connection: LinkFinder;
  /** Last index of the interface, by PCI address. */
  readonly #indices = new Map<string, number>();

  constructor(connection: LinkFinder) {
    this.#connection = connection;
  }

  /** @returns `undefined` if it is not in the namespace, or the kernel (before 5.14) does not report it. @throws NetlinkError */
  async find(pciAddress: string): Promise<Link | undefined> {
    const index = this.#indices.get(pciAddress);
    const known = index === undefined ? undefined : await this.#connection.link({ index });
    // The index may belong to another link by now.
    if (known?.parentDevice === pciAddress && !isRepresentor(known)) return known;
    const found = findVf(await this.#connection.links([{ pciAddress }]), { pciAddress });
    if (found === undefined) this.#indices.delete(pciAddress);
    else this.#indices.set(pciAddress, found.index);
    return found;
  }
}
