import { setImmediate } from 'node:timers/promises';
import { putU16, putU32 } from 'netlink';
import { encodeAddress } from '../../../src/node/netlink/address.ts';
import { type Attribute, encodeAttributes, encodeString } from '../../../src/node/netlink/attributes.ts';
import { type EthtoolConnection, NetlinkError, type RtnlConnection } from '../../../src/node/netlink/index.ts';
import { encodeLink } from '../../../src/node/netlink/link.ts';
import { encodeQdisc } from '../../../src/node/netlink/qdisc.ts';
import { encodeRoute } from '../../../src/node/netlink/route.ts';
import { completeAnswer, connectEthtool, connectKernel } from '../../doubles/netlink-kernel.ts';
import { expectThat, type FuzzTarget } from '../target.ts';

/** Requests, each with the message type of its answer. */
type Request =
  | { type: number; send: (connection: RtnlConnection) => Promise<unknown> }
  | { type: number; sendByEthtool: (connection: EthtoolConnection) => Promise<unknown> };
const requests: readonly Request[] = [
  { type: 16, send: (connection) => connection.links() },
  { type: 16, send: (connection) => connection.link({ index: 7 }) },
  { type: 16, send: (connection) => connection.vfInfos(7) },
  { type: 16, send: (connection) => connection.vfTraffic(7) },
  { type: 16, send: (connection) => connection.linkTraffic(7) },
  { type: 20, send: (connection) => connection.addresses() },
  { type: 20, send: (connection) => connection.reachableAddresses() },
  { type: 24, send: (connection) => connection.findRoutes(7, [{ destination: '10.0.0.0/8' }]) },
  { type: 24, send: (connection) => connection.defaultRoutes() },
  { type: 2, send: (connection) => connection.setLink(7, { up: true }) },
  { type: 16, send: (connection) => connection.removeAltNames(7, ['altname0']) },
  { type: 36, send: (connection) => connection.qdisc(7, 'root') },
  // The first answer is also the one to the request for the family's number: type 16 again.
  { type: 16, sendByEthtool: (connection) => connection.read(7) },
];
const rawDatagram = 0x80;

const text = (type: number, value: string): Attribute => ({ type, value: encodeString(value) });
const word = (type: number, value: number): Attribute => ({ type, value: putU32(value) });

/** A link with all properties that are read, and a PF with two VFs. */
function sampleLinks(): Uint8Array[] {
  const kind = { type: 18, value: [text(1, 'veth')] };
  const names = { type: 52, value: [text(53, 'altname0'), text(53, 'altname1')] };
  const macs = [1, 54].map((type) => ({ type, value: Buffer.from('020000000007', 'hex') }));
  const numbers: Attribute[] = [word(4, 9000), word(5, 3), word(10, 4), word(37, 1)];
  const stats = { type: 23, value: Buffer.alloc(200, 1) };
  const states = [stats, { type: 16, value: Buffer.of(6) }, { type: 33, value: Buffer.of(1) }];
  const settings = [word(13, 1000), word(27, 5), word(41, 65536), { type: 17, value: Buffer.of(1) }];
  const xdp = { type: 43, value: [{ type: 2, value: Buffer.of(2) }, word(6, 17)] };
  numbers.push(...settings, xdp);
  const link = [text(3, 'net1'), text(20, 'netdra:x'), text(56, '0000:3b:02.1'), kind, names, ...macs, ...numbers];
  return [
    Buffer.concat(encodeLink(7, [...link, ...states], { up: true })),
    Buffer.concat(encodeLink(8, [sampleVfs()])),
  ];
}

function sampleVfs(): Attribute {
  const words = (...values: number[]) => Buffer.concat(values.map(putU32));
  const vf = (index: number): Attribute => ({
    type: 1,
    value: [
      { type: 1, value: Buffer.concat([words(index), Buffer.from('020000000009', 'hex'), Buffer.alloc(26)]) },
      { type: 2, value: words(index, 7, 3) },
      { type: 4, value: words(index, 1) },
      { type: 5, value: words(index, 2) },
      { type: 6, value: words(index, 10, 100) },
      { type: 8, value: [0, 1, 2, 3, 7, 8].map((type) => ({ type, value: Buffer.alloc(8, index + 1) })) },
      { type: 9, value: words(index, 0) },
    ],
  });
  return { type: 22, value: [vf(0), vf(1)] };
}

function sampleRoutes(): Uint8Array[] {
  const hop = Buffer.concat([
    putU16(16),
    Buffer.of(0, 0),
    putU32(7),
    ...encodeAttributes([{ type: 5, value: Buffer.of(10, 0, 0, 1) }]),
  ]);
  const header = Buffer.of(2, 8, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0);
  return [
    Buffer.concat(encodeRoute({ index: 7, destination: '10.0.0.0/8', gateway: '2001:db8::1' })),
    Buffer.concat(encodeRoute({ index: 7, destination: '::/0', gateway: '2001:db8::1' })),
    Buffer.concat([header, ...encodeAttributes([{ type: 9, value: Buffer.concat([hop, hop]) }])]),
    Buffer.concat([Buffer.of(2, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0), ...encodeAttributes([word(30, 5)])]),
  ];
}

/** A root qdisc. */
function sampleQdisc(): Uint8Array[] {
  return [Buffer.concat([...encodeQdisc(7, 'ingress', 'clsact')])];
}

/** The family's number, rings and the first features, all in one: attributes are distinguished by type. */
function sampleEthtool(): Uint8Array[] {
  const bit = (name: string, parts: Attribute[] = []): Attribute => ({ type: 1, value: [text(2, name), ...parts] });
  const bits = [bit('rx-checksum', [{ type: 3, value: Buffer.alloc(0) }]), bit('rx-gro')];
  const bitset = (type: number): Attribute => ({ type, value: [word(2, 64), { type: 3, value: bits }] });
  const family = { type: 1, value: putU16(16) };
  const header = Buffer.of(16, 1, 0, 0);
  return [
    Buffer.concat([
      header,
      ...encodeAttributes([family, word(6, 256), word(9, 256), { type: 11, value: Buffer.of(1) }]),
    ]),
    Buffer.concat([header, ...encodeAttributes([family, bitset(2), bitset(3)])]),
  ];
}

/** Answers of a kernel. First byte: the request; its high bit: the rest is a datagram, not the message in it. */
export const target: FuzzTarget = {
  name: 'netlink-answers',
  errors: [NetlinkError],
  seeds() {
    const addresses = ['192.0.2.7/24', '2001:db8::7/64'].map((cidr) => Buffer.concat(encodeAddress(7, cidr)));
    const samples = [
      sampleLinks(),
      sampleLinks(),
      sampleLinks(),
      addresses,
      sampleRoutes(),
      [Buffer.alloc(20)],
      sampleLinks(),
    ];
    samples.push(sampleQdisc(), sampleEthtool());
    return samples.flatMap((messages, index) =>
      messages.flatMap((message) => [
        Buffer.concat([Buffer.of(index), message]),
        Buffer.concat([Buffer.of(rawDatagram | index), completeAnswer(0, requests[index]!.type, message)]),
      ]),
    );
  },
  async run(input) {
    const [head = 0] = input;
    const request = requests[(head & 0x7f) % requests.length]!;
    const { type } = request;
    const bytes = Buffer.from(input.subarray(1));
    let answers = 0;
    const respond = (seq: number): Uint8Array => {
      expectThat(++answers < 50, 'the same is asked again and again');
      if ((head & rawDatagram) === 0) return completeAnswer(seq, type, bytes);
      // Sets the number of the request in the first message, where the kernel has it.
      if (bytes.length >= 12) putU32(seq).copy(bytes, 8);
      return bytes;
    };
    using stack = new DisposableStack();
    const answer =
      'send' in request
        ? request.send(stack.use(connectKernel(respond)))
        : request.sendByEthtool(stack.use(connectEthtool(respond)));
    // No more data follows: closing ends requests that have not been answered by now.
    void setImmediate().then(() => stack.dispose());
    await answer;
  },
};
