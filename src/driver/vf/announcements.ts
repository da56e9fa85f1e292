import type { Logger } from '../../lib/logger.ts';
import { encodeAnnouncement, isEthernetAddress } from '../../node/netlink/index.ts';
import type { StoredDevice } from '../state/index.ts';
import type { NetworkNamespace } from './networks.ts';
import type { VfState } from './strategy.ts';

type Announced = Pick<VfState, 'hardwareAddress' | 'ips' | 'interfaceName' | 'linkUp'>;

/**
 * Announces the addresses of VFs and bonds to their networks. Neighbours, switches among them, keep the MAC address of the
 * VF that had an address before, some of them for minutes.
 */
export class Announcements {
  readonly #logger: Logger;
  /** By PCI address of a VF: what was announced last. */
  readonly #last = new Map<string, string>();

  constructor({ logger }: { logger: Logger }) {
    this.#logger = logger;
  }

  /** To be called after a VF was configured: its addresses are announced even if they are the same as before. */
  async configured(device: StoredDevice, namespace: NetworkNamespace, state: Announced): Promise<void> {
    this.forget(device);
    await this.read(device, namespace, state);
  }

  /**
   * To be called after each reading. Announces what has changed since, as soon as the link has a carrier, which hardware gets
   * some time after the interface was set up. A failure is logged: the VF can be used without.
   */
  async read(device: StoredDevice, namespace: NetworkNamespace, state: Announced): Promise<void> {
    const { hardwareAddress = '', ips, interfaceName = '', linkUp = false } = state;
    if (!linkUp) return this.forget(device);
    const now = JSON.stringify([interfaceName, hardwareAddress, ips]);
    if (this.#last.get(device.pciAddress) === now) return;
    this.#last.set(device.pciAddress, now);
    // IPoIB has no Ethernet frames; its addresses lead to a queue pair that the kernel resolves anew.
    if (!isEthernetAddress(hardwareAddress) || ips.length === 0) return;
    try {
      const link = await namespace.connection.link({ name: interfaceName });
      // It was renamed or removed since: that is a change, which is read again.
      if (link === undefined) return;
      using packets = namespace.packets(link.index);
      for (const cidr of ips) packets.send(encodeAnnouncement(hardwareAddress, cidr));
    } catch (error) {
      this.#logger.warn({ device: device.name, interfaceName, ips, err: error }, 'addresses not announced');
    }
  }

  /** To be called when a VF is detached. */
  forget({ pciAddress }: Pick<StoredDevice, 'pciAddress'>): void {
    this.#last.delete(pciAddress);
  }
}
