import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import {
  decodeArpSender,
  encodeAnnouncement,
  encodeArpProbe,
  isEthernetAddress,
  NetlinkError,
} from '../../node/netlink/index.ts';
import type { StoredDevice } from '../state/index.ts';
import { mostPodLinks, type Networks, type Packets } from './networks.ts';
import type { PodLinks } from './pod-links.ts';
import type { VfState } from './strategy.ts';

type Announced = Pick<VfState, 'hardwareAddress' | 'ips' | 'interfaceName' | 'linkUp' | 'unconfirmed'>;

/** Time to wait for an answer to an ARP probe; hosts of one network take less than a millisecond. */
const answerMs = 200;
/** Number of times to send probes and announcements, as in RFC 5227: a frame right after link-up may get lost. */
const pausesMs = [0, 1_000];
/** Most frames to read while waiting: a network can send any number. */
const maxFrames = 1_024;

export interface AnnouncementsOptions {
  networks: Pick<Networks, 'open'>;
  clock: Clock;
  logger: Logger;
  /** Called when other hosts are found to have IPv4 addresses of a VF, or no longer. */
  onConflict: (device: StoredDevice) => void;
}

/** An interface of a pod, with the addresses to announce. */
interface Subject {
  device: StoredDevice;
  hardwareAddress: string;
  ips: readonly string[];
}

/**
 * Announces the addresses of VFs and bonds to their networks. Neighbours and switches remember the MAC address of the VF that
 * last had an address, some of them for minutes. Probes IPv4 addresses first, since the kernel does not detect other hosts
 * that have them, and does not announce an address of another host.
 */
export class Announcements {
  readonly #options: AnnouncementsOptions;
  /** The latest announcement, by PCI address of the VF. */
  readonly #last = new Map<string, string>();
  /** Running announcements, by PCI address of the VF. */
  readonly #underWay = new Map<string, string>();
  /** IPv4 addresses of other hosts with their MAC addresses, by PCI address of the VF. */
  readonly #conflicts = new Map<string, ReadonlyMap<string, string>>();

  constructor(options: AnnouncementsOptions) {
    this.#options = options;
  }

  /** Makes the next reading announce the addresses even if they have not changed. Call this after configuring a VF. */
  async configured(device: StoredDevice, pod: PodLinks, state: Announced): Promise<void> {
    this.forget(device);
    await this.read(device, pod, state);
  }

  /**
   * Announces changes since the last reading, as soon as the link has a carrier; hardware gets one some time after the interface
   * was set up. Call this after each reading. Logs a failure, since the VF works without announcements.
   */
  async read(device: StoredDevice, pod: PodLinks, state: Announced): Promise<void> {
    const { hardwareAddress = '', interfaceName = '', linkUp = false, unconfirmed = [] } = state;
    if (!linkUp) return void this.#last.delete(device.pciAddress);
    // RFC 4429: an address is not announced before duplicate address detection has ended.
    const ips = state.ips.filter((cidr) => !unconfirmed.includes(cidr));
    const now = JSON.stringify([interfaceName, hardwareAddress, ips]);
    const isKnown = this.#last.get(device.pciAddress) === now;
    const isUnderWay = this.#underWay.get(device.pciAddress) === now;
    if (isKnown && (isUnderWay || !this.#conflicts.has(device.pciAddress))) return;
    this.#last.set(device.pciAddress, now);
    // IPoIB has no Ethernet frames; the kernel resolves the queue pair of an address itself.
    if (!isEthernetAddress(hardwareAddress) || ips.length === 0) return;
    try {
      const link = await pod.namespace.connection.link({ name: interfaceName });
      // The interface was renamed or removed since; that change causes another reading.
      if (link === undefined) return;
      const packets = pod.namespace.packets(link.index);
      void this.#announce({ device, hardwareAddress, ips }, packets, now);
    } catch (error) {
      this.#failed(device, error);
    }
  }

  /** Returns IPv4 addresses of a VF that other hosts of its network have, with their MAC addresses. */
  conflictsOf({ pciAddress }: Pick<StoredDevice, 'pciAddress'>): ReadonlyMap<string, string> {
    return this.#conflicts.get(pciAddress) ?? new Map();
  }

  /** Forgets a VF. Call this when it is detached. */
  forget({ pciAddress }: Pick<StoredDevice, 'pciAddress'>): void {
    this.#last.delete(pciAddress);
    this.#conflicts.delete(pciAddress);
  }

  /** Announces an interface. Never rejects. @param version of the announcement: a newer one may start before the answers arrive */
  async #announce(subject: Subject, socket: Packets, version: string): Promise<void> {
    const { device, hardwareAddress, ips } = subject;
    const { pciAddress } = device;
    const { clock } = this.#options;
    const probed = ips.filter((cidr) => !cidr.includes(':'));
    this.#underWay.set(pciAddress, version);
    try {
      using packets = socket;
      for (const pauseMs of pausesMs) {
        if (pauseMs > 0) await clock.sleep(pauseMs);
        if (this.#last.get(pciAddress) !== version) return;
        for (const cidr of probed) packets.send(encodeArpProbe(hardwareAddress, cidr));
        if (probed.length > 0) await clock.sleep(answerMs);
        if (this.#last.get(pciAddress) !== version) return;
        const conflicts = await this.#ofOthers(device, answersFor(subject, packets));
        for (const cidr of ips) {
          if (!conflicts.has(cidr)) packets.send(encodeAnnouncement(hardwareAddress, cidr));
        }
        this.#note(device, conflicts);
      }
    } catch (error) {
      if (hasLeft(error)) this.#last.delete(pciAddress);
      else this.#failed(device, error);
    } finally {
      if (this.#underWay.get(pciAddress) === version) this.#underWay.delete(pciAddress);
    }
  }

  /** Skips answers of the pod itself: its kernel answers on each interface for all of its addresses. */
  async #ofOthers({ attachment }: StoredDevice, answers: ReadonlyMap<string, string>) {
    if (answers.size === 0 || attachment === undefined) return answers;
    using namespace = this.#options.networks.open(attachment.netnsPath);
    const asked = [...answers.values()].map((hardwareAddress) => ({ hardwareAddress }));
    const links = (await namespace?.connection.links(asked, mostPodLinks)) ?? [];
    const own = links.map(({ hardwareAddress }) => hardwareAddress);
    return new Map([...answers].filter(([, hardwareAddress]) => !own.includes(hardwareAddress)));
  }

  #note(device: StoredDevice, conflicts: ReadonlyMap<string, string>): void {
    const { pciAddress } = device;
    const textOf = (found: ReadonlyMap<string, string>) => JSON.stringify([...found].sort());
    const isNew = textOf(conflicts) !== textOf(this.conflictsOf(device));
    if (conflicts.size === 0) this.#conflicts.delete(pciAddress);
    else this.#conflicts.set(pciAddress, conflicts);
    if (isNew) this.#options.onConflict(device);
  }

  #failed({ name }: StoredDevice, err: unknown): void {
    this.#options.logger.warn({ device: name, err }, 'addresses not announced');
  }
}

/** Returns whether the interface is gone or down by now: the next reading announces it when it is up. */
function hasLeft(error: unknown): boolean {
  return error instanceof NetlinkError && ['ENETDOWN', 'ENODEV', 'ENXIO'].includes(error.errno ?? '');
}

/** Addresses that others claim, and the MAC address of one of them. */
function answersFor({ ips, hardwareAddress: own }: Subject, packets: Packets): ReadonlyMap<string, string> {
  const conflicts = new Map<string, string>();
  for (let count = 0; count < maxFrames; count++) {
    const frame = packets.receive();
    if (frame === undefined) break;
    const sender = decodeArpSender(frame);
    if (sender === undefined || own === sender.hardwareAddress) continue;
    const cidr = ips.find((each) => each.split('/')[0] === sender.address);
    if (cidr !== undefined) conflicts.set(cidr, sender.hardwareAddress);
  }
  return conflicts;
}
