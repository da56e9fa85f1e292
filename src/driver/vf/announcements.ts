import { type DeviceKey, formatDeviceKey } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import {
  decodeArpSender,
  encodeAnnouncement,
  encodeArpProbe,
  isEthernetAddress,
  NetlinkError,
} from '../../node/netlink/index.ts';
import type { StoredDevice } from '../model/index.ts';
import { mostPodLinks, type NamespaceOpener, type Packets } from './networks.ts';
import type { PodLinks } from './pod-links.ts';
import type { VfState } from './strategy.ts';

/** How long an answer to an ARP probe is awaited, ms; hosts of one network answer in less than a millisecond. */
const answerMs = 200;
/**
 * Pauses before each round of probes and announcements, ms. There are several rounds, as in RFC 5227: a frame right after
 * link-up may get lost.
 */
const pausesMs = [0, 1_000];
/**
 * Pause before an address with a conflict is probed again, ms. A conflict causes the VF to be read again at once. Without a
 * pause, a host that answers only some probes, or two hosts that answer in turn, would keep the driver busy forever.
 */
const restMs = 10_000;
/** Maximum number of received frames that are read, since a network can send any number. */
const maxFrames = 1_024;

export interface AnnouncementsOptions {
  networks: NamespaceOpener;
  clock: Clock;
  logger: Logger;
  /** Called when other hosts begin or cease to have some of a VF's IPv4 addresses. */
  onConflict: (device: StoredDevice) => void;
}

/** A run of probes and announcements. `of` is its interface and addresses, as text. */
interface Run {
  readonly of: string;
}

/** Interface of a pod, with the addresses to announce. */
interface Subject {
  device: StoredDevice;
  hardwareAddress: string;
  ips: readonly string[];
}

/**
 * Announces the addresses of VFs and bonds to their networks: neighbors and switches remember, some of them for minutes, the
 * MAC address of the VF that last had an address. Probes IPv4 addresses first, since the kernel does not detect duplicates of
 * them, and does not announce an address that another host has.
 */
export class Announcements {
  readonly #options: AnnouncementsOptions;
  /** Last run, by key of the device. Another object is another run, even with the same addresses. */
  readonly #last = new Map<string, Run>();
  /** Times at which addresses were last probed, ms, by key of the device. */
  readonly #probedAtMs = new Map<string, number>();
  /** IPv4 addresses that other hosts have, with their MAC addresses, by key of the device. */
  readonly #conflicts = new Map<string, ReadonlyMap<string, string>>();

  constructor(options: AnnouncementsOptions) {
    this.#options = options;
  }

  /** Announces the addresses of a VF even if they have not changed. Must be called after a VF was configured. */
  async configured(device: StoredDevice, pod: PodLinks, state: VfState): Promise<void> {
    this.forget(device);
    await this.read(device, pod, state);
  }

  /**
   * Announces addresses that have changed since the last reading, once the link has a carrier: hardware gets one some time
   * after the interface was set up. Must be called after each reading. Only logs a failure, since the VF works without
   * announcements.
   */
  async read(device: StoredDevice, pod: PodLinks, state: VfState): Promise<void> {
    const { hardwareAddress = '', interfaceName = '', linkUp = false, unconfirmed = [] } = state;
    const key = formatDeviceKey(device);
    if (!linkUp) return void this.#last.delete(key);
    // An address is not announced before duplicate address detection has ended (RFC 4429).
    const ips = state.ips.filter((cidr) => !unconfirmed.includes(cidr));
    const now: Run = { of: JSON.stringify([interfaceName, hardwareAddress, ips]) };
    const isKnown = this.#last.get(key)?.of === now.of;
    if (isKnown && (this.#isResting(device) || !this.#conflicts.has(key))) return;
    this.#last.set(key, now);
    // Addresses over InfiniBand are not announced: it has no Ethernet frames, and the kernel resolves addresses to queue pairs.
    if (!isEthernetAddress(hardwareAddress) || ips.length === 0) return void this.#conflicts.delete(key);
    try {
      const link = await pod.namespace.connection.link({ name: interfaceName });
      // The interface was renamed or removed in the meantime. That change causes another reading.
      if (link === undefined) return;
      const packets = pod.namespace.packets(link.index);
      void this.#announce({ device, hardwareAddress, ips }, packets, now);
    } catch (error) {
      this.#failed(device, error);
    }
  }

  /** Returns the IPv4 addresses of a VF that another host of its network has, too, each with the MAC address of that host. */
  conflictsOf(device: DeviceKey): ReadonlyMap<string, string> {
    return this.#conflicts.get(formatDeviceKey(device)) ?? new Map();
  }

  /** Forgets a VF. Must be called when the VF is detached. */
  forget(device: DeviceKey): void {
    const key = formatDeviceKey(device);
    this.#last.delete(key);
    this.#probedAtMs.delete(key);
    this.#conflicts.delete(key);
  }

  #isResting(device: StoredDevice): boolean {
    const probedAtMs = this.#probedAtMs.get(formatDeviceKey(device));
    return probedAtMs !== undefined && this.#options.clock.nowMs() - probedAtMs < restMs;
  }

  /**
   * Probes and announces addresses. Never rejects. @param run this run; it ends when another run of the device begins,
   * perhaps for the next pod
   */
  async #announce(subject: Subject, socket: Packets, run: Run): Promise<void> {
    const { device, hardwareAddress, ips } = subject;
    const key = formatDeviceKey(device);
    const { clock } = this.#options;
    const probed = ips.filter((cidr) => !cidr.includes(':'));
    this.#probedAtMs.set(key, clock.nowMs());
    try {
      using packets = socket;
      for (const pauseMs of pausesMs) {
        if (pauseMs > 0) await clock.sleep(pauseMs);
        if (this.#last.get(key) !== run) return;
        for (const cidr of probed) packets.send(encodeArpProbe(hardwareAddress, cidr));
        if (probed.length > 0) await clock.sleep(answerMs);
        const conflicts = await this.#ofOthers(device, answersFor(subject, packets));
        if (this.#last.get(key) !== run) return;
        for (const cidr of ips) {
          if (!conflicts.has(cidr)) packets.send(encodeAnnouncement(hardwareAddress, cidr));
        }
        this.#note(device, conflicts);
      }
    } catch (error) {
      if (this.#last.get(key) !== run) return;
      if (hasLeft(error)) this.#last.delete(key);
      else this.#failed(device, error);
    }
  }

  /**
   * Returns the answers of other hosts. Skips answers of the pod itself, whose kernel answers on each interface for all of
   * its addresses.
   */
  async #ofOthers({ attachment }: StoredDevice, answers: ReadonlyMap<string, string>) {
    if (answers.size === 0 || attachment === undefined) return answers;
    using namespace = this.#options.networks.open(attachment.netnsPath);
    const asked = [...answers.values()].map((hardwareAddress) => ({ hardwareAddress }));
    const links = (await namespace?.connection.links(asked, mostPodLinks)) ?? [];
    const own = links.map(({ hardwareAddress }) => hardwareAddress);
    return new Map([...answers].filter(([, hardwareAddress]) => !own.includes(hardwareAddress)));
  }

  #note(device: StoredDevice, conflicts: ReadonlyMap<string, string>): void {
    const key = formatDeviceKey(device);
    // MAC addresses are not compared: a host could use another one in each answer.
    const textOf = (found: ReadonlyMap<string, string>) => JSON.stringify([...found.keys()].sort());
    const isNew = textOf(conflicts) !== textOf(this.conflictsOf(device));
    if (conflicts.size === 0) this.#conflicts.delete(key);
    else this.#conflicts.set(key, conflicts);
    if (isNew) this.#options.onConflict(device);
  }

  #failed({ name }: StoredDevice, err: unknown): void {
    this.#options.logger.warn({ device: name, err }, 'cannot announce addresses');
  }
}

/** Returns whether the interface is gone or down. When it is up again, the next reading announces its addresses. */
function hasLeft(error: unknown): boolean {
  return error instanceof NetlinkError && ['ENETDOWN', 'ENODEV', 'ENXIO'].includes(error.errno ?? '');
}

/** Returns the addresses that other interfaces claim, each with the MAC address of one of them. */
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
