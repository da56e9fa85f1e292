import { parseHardwareAddress } from './checks.ts';
import { AddressFamily, type Cidr, parseCidr } from './cidr.ts';
import { EtherType } from './packet-socket.ts';

const broadcast = Buffer.alloc(6, 0xff);
/** Multicast address of all nodes, ff02::1, and its Ethernet address. Source: RFC 2464, 7. */
const allNodes = Buffer.from('ff020000000000000000000000000001', 'hex');
const allNodesEthernet = Buffer.from('333300000001', 'hex');
/** Header of ARP for Ethernet and IPv4, whose addresses have 6 and 4 octets. Source: RFC 826. */
const arpForm = Buffer.of(0, 1, 0x08, 0, 6, 4);
const arpRequest = 1;
const arpBytes = 28;
const ethernetBytes = 14;
const icmpv6 = 58;
/** Hop limit: receivers drop neighbor discovery messages with a lower one, which a router may have forwarded. */
const hopLimit = 255;
const neighbourAdvertisement = { type: 136, override: 0x20, targetLinkLayerAddress: 2 } as const;

/**
 * Returns the frame that makes neighbors update their entry for an address: an ARP announcement for IPv4 (RFC 5227, 2.3), an
 * unsolicited neighbor advertisement for IPv6 (RFC 4861, 7.2.6).
 * @param hardwareAddress address of an Ethernet interface that has the IP address
 */
export function encodeAnnouncement(hardwareAddress: string, cidr: string): Buffer {
  const source = parseHardwareAddress(hardwareAddress);
  const { family, octets } = parseCidr(cidr);
  return family === AddressFamily.ipv4 ? arpAnnouncement(source, octets) : unsolicitedAdvertisement(source, octets);
}

/** Returns an ARP probe, which asks for an IPv4 address without claiming it. Source: RFC 5227, 2.1.1. */
export function encodeArpProbe(hardwareAddress: string, cidr: string): Buffer {
  const source = parseHardwareAddress(hardwareAddress);
  const arp = [arpForm, Buffer.of(0, arpRequest), source, Buffer.alloc(4), Buffer.alloc(6), parseCidr(cidr).octets];
  return ethernetFrame(broadcast, source, EtherType.arp, arp);
}

/**
 * Returns the host that claims an IPv4 address in a frame: every ARP message claims its sender address.
 * @returns `undefined` for frames that are not ARP for Ethernet and IPv4, and for probes, which claim no address
 */
export function decodeArpSender(frame: Buffer): { hardwareAddress: string; address: string } | undefined {
  const arp = frame.subarray(ethernetBytes);
  const isArp = frame.length >= ethernetBytes + arpBytes && frame.readUInt16BE(12) === EtherType.arp;
  if (!isArp || !arp.subarray(0, arpForm.length).equals(arpForm)) return undefined;
  const address = arp.subarray(14, 18);
  if (address.every((octet) => octet === 0)) return undefined;
  const hardwareAddress = [...arp.subarray(8, 14)].map((octet) => octet.toString(16).padStart(2, '0')).join(':');
  return { hardwareAddress, address: address.join('.') };
}

function arpAnnouncement(source: Uint8Array, address: Cidr['octets']): Buffer {
  const arp = [arpForm, Buffer.of(0, arpRequest), source, address, Buffer.alloc(6), address];
  return ethernetFrame(broadcast, source, EtherType.arp, arp);
}

function unsolicitedAdvertisement(source: Uint8Array, address: Cidr['octets']): Buffer {
  const { type, override, targetLinkLayerAddress } = neighbourAdvertisement;
  const message = Buffer.concat([
    Buffer.of(type, 0, 0, 0, override, 0, 0, 0),
    address,
    Buffer.of(targetLinkLayerAddress, 1),
    source,
  ]);
  const length = Buffer.of(message.length >> 8, message.length & 0xff);
  const pseudoHeader = [address, allNodes, Buffer.of(0, 0), length, Buffer.of(0, 0, 0, icmpv6)];
  message.writeUInt16BE(checksum(Buffer.concat([...pseudoHeader, message])), 2);
  const ip = [Buffer.of(0x60, 0, 0, 0), length, Buffer.of(icmpv6, hopLimit), address, allNodes];
  return ethernetFrame(allNodesEthernet, source, EtherType.ipv6, [...ip, message]);
}

function ethernetFrame(to: Uint8Array, from: Uint8Array, type: number, payload: Uint8Array[]): Buffer {
  return Buffer.concat([to, from, Buffer.of(type >> 8, type & 0xff), ...payload]);
}

/** Computes the Internet checksum. Source: RFC 1071. @param data bytes, an even number of them */
function checksum(data: Buffer): number {
  let sum = 0;
  for (let at = 0; at < data.length; at += 2) sum += data.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
