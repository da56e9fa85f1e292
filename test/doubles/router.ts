import { type Link, type NetnsHandle, parseCidr, parseIpAddress } from '../../src/node/netlink/index.ts';
import { EtherType, PacketSocket } from '../../src/node/netlink/packet-socket.ts';

/** Sends a router advertisement into the network of a link. @param prefixes see {@link Advertisement} */
export function advertise(netns: NetnsHandle, link: Pick<Link, 'index' | 'hardwareAddress'>, prefixes: string[]): void {
  const { index, hardwareAddress = '' } = link;
  using socket = new PacketSocket(netns, index, EtherType.none);
  socket.send(routerAdvertisement({ from: 'fe80::bad', hardwareAddress, prefixes }));
}

interface Advertisement {
  /** Link-local address of the sender. */
  from: string;
  hardwareAddress: string;
  /** Networks on the link, whose hosts make themselves addresses of those with 64 bits. */
  prefixes: readonly string[];
}

/** An Ethernet frame with a router advertisement, as every host of a network can send one. Source: RFC 4861, 4.2 and 4.6.2. */
function routerAdvertisement(options: Advertisement): Buffer {
  const lifetimeSeconds = 1_800;
  const header = Buffer.of(134, 0, 0, 0, 64, 0, ...octets16(lifetimeSeconds), ...Buffer.alloc(8));
  const onLinkAndAutonomous = 0xc0;
  const lifetimes = Buffer.alloc(8);
  lifetimes.writeUInt32BE(3_600, 0);
  lifetimes.writeUInt32BE(3_600, 4);
  const prefixes = options.prefixes.map((cidr) => {
    const { octets, prefixLength } = parseCidr(cidr);
    return Buffer.of(3, 4, prefixLength, onLinkAndAutonomous, ...lifetimes, 0, 0, 0, 0, ...octets);
  });
  const message = Buffer.concat([header, ...prefixes]);
  const source = Buffer.from(parseIpAddress(options.from).octets);
  const allNodes = Buffer.from(parseIpAddress('ff02::1').octets);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(message.length);
  const pseudoHeader = Buffer.concat([source, allNodes, length, Buffer.of(0, 0, 0, 58)]);
  message.writeUInt16BE(checksum(Buffer.concat([pseudoHeader, message])), 2);
  const ip = Buffer.concat([Buffer.of(0x60, 0, 0, 0, ...octets16(message.length), 58, 255), source, allNodes]);
  const from = Buffer.from(options.hardwareAddress.replaceAll(':', ''), 'hex');
  return Buffer.concat([Buffer.of(0x33, 0x33, 0, 0, 0, 1), from, Buffer.of(0x86, 0xdd), ip, message]);
}

function octets16(value: number): [number, number] {
  return [value >> 8, value & 0xff];
}

/** Source: RFC 1071. @param data of an even number of octets */
export function checksum(data: Buffer): number {
  let sum = 0;
  for (let at = 0; at < data.length; at += 2) sum += data.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}
