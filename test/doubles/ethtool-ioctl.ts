import { closeSync } from 'node:fs';
import koffi from 'koffi';
import { type NetnsHandle, openInNetns } from '../../src/node/netlink/index.ts';

/** `AF_INET`, `SOCK_DGRAM`, `SIOCETHTOOL` of Linux `sockios.h`. */
const [internet, datagrams, ethtool] = [2, 2, 0x8946];
const nameBytes = 16;

/** `ETHTOOL_*` of Linux `ethtool.h`: commands to read and to set, and the number of words in the struct. */
const structs = {
  coalescing: { get: 0x0e, set: 0x0f, words: 23 },
  rings: { get: 0x10, set: 0x11, words: 9 },
  txChecksum: { get: 0x16, set: 0x17, words: 2 },
  tcpSegmentation: { get: 0x1e, set: 0x1f, words: 2 },
  genericReceiveOffload: { get: 0x2b, set: 0x2c, words: 2 },
} as const;
export type EthtoolStruct = keyof typeof structs;

/** ethtool's interface before generic netlink, against which our own reading and setting is checked. */
export class EthtoolIoctl implements Disposable {
  readonly #fd: number;
  readonly #ioctl = koffi.load(null).func('int ioctl(int fd, ulong request, void *argument)');

  constructor(netns: NetnsHandle) {
    const socket = koffi.load(null).func('int socket(int domain, int type, int protocol)');
    this.#fd = openInNetns(netns, () => socket(internet, datagrams, 0));
    if (this.#fd < 0) throw new Error(`socket failed: errno ${koffi.errno()}`);
  }

  /** The words of the struct after the command. */
  get(name: string, struct: EthtoolStruct): number[] {
    const { get, words } = structs[struct];
    const data = this.#call(name, [get, ...Array.from({ length: words - 1 }, () => 0)]);
    return Array.from({ length: words - 1 }, (_, index) => data.readUInt32LE(4 * (index + 1)));
  }

  /** @param change new values of some words, by their index in the result of {@link get} */
  set(name: string, struct: EthtoolStruct, change: Record<number, number>): void {
    const values = this.get(name, struct).map((value, index) => change[index] ?? value);
    this.#call(name, [structs[struct].set, ...values]);
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }

  #call(name: string, words: number[]): Buffer {
    const data = Buffer.alloc(4 * words.length);
    for (const [index, word] of words.entries()) data.writeUInt32LE(word, 4 * index);
    // struct ifreq
    const request = Buffer.alloc(40);
    request.write(name);
    request.writeBigUInt64LE(BigInt(koffi.address(data)), nameBytes);
    if (this.#ioctl(this.#fd, ethtool, request) === 0) return data;
    throw new Error(`ethtool command ${words[0]} on ${name} failed: errno ${koffi.errno()}`);
  }
}
