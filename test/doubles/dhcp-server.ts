import { type Link, type NetnsHandle, parseIpAddress } from '../../src/node/netlink/index.ts';
import { EtherType, PacketSocket } from '../../src/node/netlink/packet-socket.ts';
import { checksum } from './router.ts';

/** Source: RFC 2132, 9.6. */
const MessageType = { discover: 1, offer: 2, request: 3, ack: 5, release: 7 } as const;
/** Source: RFC 2132. */
const Option = {
  subnetMask: 1,
  router: 3,
  leaseSeconds: 51,
  messageType: 53,
  serverId: 54,
  requested: 55,
  end: 255,
} as const;
const ethernetBytes = 14;
const udpBytes = 8;
/** Of the fixed fields of a message, with the magic cookie. Source: RFC 2131, 2 and 3. */
const fixedBytes = 240;
const everyMs = 10;

/** A DHCP server with one address for each client, in 192.0.2.0/24. */
export class DhcpServer implements Disposable {
  /** Leased addresses, by the MAC address of the client. */
  readonly leases = new Map<string, string>();
  readonly #socket: PacketSocket;
  readonly #address: string;
  readonly #timer: NodeJS.Timeout;
  readonly #onRequest: () => void;
  #last = 100;

  /** @param link on the network of its clients @param onRequest called before each answer */
  constructor(
    netns: NetnsHandle,
    { index, hardwareAddress = '' }: Pick<Link, 'index' | 'hardwareAddress'>,
    onRequest: () => void = () => undefined,
  ) {
    this.#onRequest = onRequest;
    this.#socket = new PacketSocket(netns, index, EtherType.all);
    this.#address = hardwareAddress;
    this.#timer = setInterval(() => this.#serve(), everyMs);
  }

  #serve(): void {
    for (let frame = this.#socket.receive(); frame !== undefined; frame = this.#socket.receive()) {
      const message = requestIn(frame);
      if (message === undefined) continue;
      const client = message.subarray(28, 34).toString('hex');
      const type = optionOf(message, Option.messageType)?.[0];
      if (type === MessageType.release) this.leases.delete(client);
      if (type === MessageType.discover)
        this.#answer(message, MessageType.offer, this.leases.get(client) ?? this.#next());
      if (type !== MessageType.request) continue;
      const leased = this.leases.get(client) ?? `192.0.2.${this.#last}`;
      this.leases.set(client, leased);
      this.#answer(message, MessageType.ack, leased);
    }
  }

  #next(): string {
    return `192.0.2.${++this.#last}`;
  }

  #answer(request: Buffer, type: number, address: string): void {
    this.#onRequest();
    const server = parseIpAddress('192.0.2.1').octets;
    const fixed = Buffer.from(request.subarray(0, fixedBytes));
    fixed[0] = 2;
    fixed.set(parseIpAddress(address).octets, 16);
    const wantsRouter = optionOf(request, Option.requested)?.includes(Option.router) ?? false;
    const options = Buffer.concat([
      Buffer.of(Option.messageType, 1, type),
      Buffer.of(Option.serverId, 4, ...server),
      Buffer.of(Option.leaseSeconds, 4, 0, 0, 14, 16),
      Buffer.of(Option.subnetMask, 4, 255, 255, 255, 0),
      ...(wantsRouter ? [Buffer.of(Option.router, 4, ...server)] : []),
      Buffer.of(Option.end),
    ]);
    const udp = Buffer.alloc(udpBytes);
    udp.writeUInt16BE(67, 0);
    udp.writeUInt16BE(68, 2);
    udp.writeUInt16BE(udpBytes + fixed.length + options.length, 4);
    const ip = Buffer.of(0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, ...server, 255, 255, 255, 255);
    ip.writeUInt16BE(ip.length + udp.length + fixed.length + options.length, 2);
    ip.writeUInt16BE(checksum(ip), 10);
    const from = Buffer.from(this.#address.replaceAll(':', ''), 'hex');
    const ethernet = Buffer.concat([Buffer.alloc(6, 0xff), from, Buffer.of(8, 0)]);
    this.#socket.send(Buffer.concat([ethernet, ip, udp, fixed, options]));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#socket[Symbol.dispose]();
  }
}

/** Returns the message to a server in a frame. */
function requestIn(frame: Buffer): Buffer | undefined {
  if (frame.length < ethernetBytes + 20 || frame.readUInt16BE(12) !== 0x0800 || frame[ethernetBytes + 9] !== 17) return;
  const udp = frame.subarray(ethernetBytes + 4 * (frame.readUInt8(ethernetBytes) & 0xf));
  return udp.length >= udpBytes + fixedBytes && udp.readUInt16BE(2) === 67 ? udp.subarray(udpBytes) : undefined;
}

function optionOf(message: Buffer, option: number): Buffer | undefined {
  for (
    let at = fixedBytes;
    at + 2 < message.length && message[at] !== Option.end;
    at += 2 + message.readUInt8(at + 1)
  ) {
    if (message[at] === option) return message.subarray(at + 2, at + 2 + message.readUInt8(at + 1));
  }
  return undefined;
}
