import type { Link } from './link.ts';
import type { LinkFinder } from './link-access.ts';
import { findVf } from './network-state.ts';
import { isRepresentor } from './representor.ts';

/**
 * Finds the interfaces of PCI functions in one network namespace. First asks for the link at the index of the last time: that
 * answer is small, whereas the list of a large node has hundreds of links, and pods wait for it.
 */
export class FunctionLinks {
  readonly #connection: LinkFinder;
  /** Last known index of the interface, by PCI address. */
  readonly #indices = new Map<string, number>();

  constructor(connection: LinkFinder) {
    this.#connection = connection;
  }

  /**
   * Finds the interface of a function. @returns `undefined` if it is not in the namespace, or if the kernel (before 5.14)
   * does not report bus addresses @throws NetlinkError
   */
  async find(pciAddress: string): Promise<Link | undefined> {
    const index = this.#indices.get(pciAddress);
    const known = index === undefined ? undefined : await this.#connection.link({ index });
    // By now, the index may belong to another link.
    if (known?.parentDevice === pciAddress && !isRepresentor(known)) return known;
    const found = findVf(await this.#connection.links([{ pciAddress }]), { pciAddress });
    if (found === undefined) this.#indices.delete(pciAddress);
    else this.#indices.set(pciAddress, found.index);
    return found;
  }
}
