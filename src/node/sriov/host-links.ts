import type { Clock } from '../../lib/clock.ts';
import { FunctionLinks, type Link, type LinkFinder } from '../netlink/index.ts';
import { type DriverBinding, hasNoInterface } from './driver-binding.ts';
import { SriovError } from './errors.ts';
import { awaitInterface } from './function-interface.ts';

/**
 * Time for VFs to return, ms: the kernel removes an unused namespace in the background, and returns its VFs only at the end.
 */
const comesBackMs = 3_000;
/** Time for an interface to appear after its driver was bound, ms. */
const appearsMs = 5_000;
const everyMs = 50;

interface HostLinksOptions {
  binding: DriverBinding;
  /** Netlink connection in the host's network namespace. */
  host: LinkFinder;
  clock: Clock;
}

/** Makes sure that the interfaces of PCI functions are in the host's network namespace. */
export class HostLinks {
  readonly #options: HostLinksOptions;
  readonly #links: FunctionLinks;

  constructor(options: HostLinksOptions) {
    this.#options = options;
    this.#links = new FunctionLinks(options.host);
  }

  /**
   * Waits for an interface that the kernel is returning. Returns at once for a function whose driver creates no interfaces.
   * @param withinMs time limit, ms; default: 3 s
   * @returns the interface, if the driver creates one
   * @throws SriovError `vf-missing` if an interface that should exist does not appear
   */
  async ensure(pciAddress: string, withinMs = comesBackMs): Promise<Link | undefined> {
    const { binding } = this.#options;
    const driver = await binding.driverOf(pciAddress);
    if (hasNoInterface(driver)) return undefined;
    const link = await this.#appears(pciAddress, withinMs);
    if (link !== undefined) return link;
    if (await binding.hasInterface(pciAddress))
      throw missing(
        pciAddress,
        'the network namespace that the interface was in may still exist: end what keeps it alive',
      );
    throw missing(pciAddress, `the driver ${driver} has created no interface: the kernel log says why`);
  }

  /** Returns whether a function exists and has no kernel driver. */
  async isUnbound(pciAddress: string): Promise<boolean> {
    const { binding } = this.#options;
    return (await binding.isPresent(pciAddress)) && (await binding.driverOf(pciAddress)) === undefined;
  }

  /**
   * Works like {@link ensure} for a function whose interface netdra has moved away. If the interface does not return,
   * recreates it by binding the kernel driver again. Unbinding removes an interface from any namespace, so no path of the
   * namespace is needed.
   * @returns whether the interface was recreated; it then has the name and the settings of a new interface
   * @throws SriovError `binding-failed`, `vf-missing`
   */
  async recreate(pciAddress: string): Promise<boolean> {
    const { binding } = this.#options;
    if (!(await binding.isPresent(pciAddress))) return false;
    const driver = await binding.driverOf(pciAddress);
    // The function had an interface, so a missing driver means that an earlier attempt was interrupted.
    if (driver !== undefined && (hasNoInterface(driver) || (await this.#appears(pciAddress, comesBackMs))))
      return false;
    await binding.rebind(pciAddress);
    if (await this.#appears(pciAddress, appearsMs)) return true;
    throw missing(pciAddress, 'the driver was bound again but created no interface: the kernel log says why');
  }

  async #appears(pciAddress: string, forMs: number): Promise<Link | undefined> {
    const { binding, clock } = this.#options;
    return await awaitInterface({ binding, links: this.#links, clock }, pciAddress, { forMs, everyMs });
  }
}

function missing(pciAddress: string, hint: string): SriovError {
  const message = `the interface of ${pciAddress} is not in the host's network namespace`;
  return new SriovError('vf-missing', message, { device: pciAddress, retriable: true, hint });
}
