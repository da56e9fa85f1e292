import { AddressFamily, type Cidr, parseCidr } from '../../node/netlink/index.ts';
import type { AddressPoolSpec } from '../api/address-pool.ts';

/** Maximum number of addresses of each IP version that a pool assigns: each address is a lease object in the API server. */
export const mostAddresses = 4_096;

export const families = [AddressFamily.ipv4, AddressFamily.ipv6] as const;

/** Consecutive addresses of one family, as numbers, both ends included. */
interface Interval {
  first: bigint;
  last: bigint;
}

interface Free extends Interval {
  /** Prefix length of the network that the addresses are in. */
  prefixLength: number;
}

/** An address as a number, with the prefix length of its network. */
export interface PoolAddress {
  number: bigint;
  /** Index among all addresses of its family in the pool, from 0. */
  position: number;
  prefixLength: number;
}

/** The addresses of one family that a pool assigns. */
export class PoolAddresses {
  readonly size: number;
  readonly #family: AddressFamily;
  readonly #free: Free[];

  /** Computes the free intervals. The time depends on the number of ranges and exclusions, not on their sizes. */
  constructor({ ranges, exclude = [] }: AddressPoolSpec, family: AddressFamily) {
    this.#family = family;
    const taken = exclude.map(parseBlock).filter((block) => block.family === family);
    const free: Free[] = [];
    for (const range of ranges) {
      const network = parseBlock(range.network);
      if (network.family !== family) continue;
      const { prefixLength } = network;
      const whole = {
        first: range.first === undefined ? network.first : parseBlock(range.first).first,
        last: range.last === undefined ? network.last : parseBlock(range.last).last,
      };
      const reserved = reservedIn(network);
      const others = [...taken, ...reserved, ...free];
      free.push(...without(whole, others).map((interval) => ({ ...interval, prefixLength })));
    }
    this.#free = free;
    const count = free.reduce((sum, { first, last }) => sum + (last - first + 1n), 0n);
    this.size = Number(count < mostAddresses ? count : BigInt(mostAddresses));
  }

  /** Returns the addresses that are not taken, in the order of the ranges. */
  except(taken: ReadonlySet<bigint>): PoolAddress[] {
    const others: PoolAddress[] = [];
    let position = 0;
    for (const { first, last, prefixLength } of this.#free) {
      for (let number = first; number <= last && position < this.size; number++, position++) {
        if (!taken.has(number)) others.push({ number, position, prefixLength });
      }
    }
    return others;
  }

  /** Returns whether a range contains the address, no exclusion does, and the network has the same prefix length. */
  has({ family, octets, prefixLength }: Cidr): boolean {
    const number = numberOf(octets);
    const isHere = (free: Free) => free.prefixLength === prefixLength && free.first <= number && number <= free.last;
    return family === this.#family && this.#free.some(isHere);
  }

  toCidr({ number, prefixLength }: PoolAddress): Cidr {
    return { family: this.#family, octets: toOctets(number, this.#family), prefixLength };
  }
}

/** Returns an address as a number. An IPv4 and an IPv6 address can have the same number. */
export function numberOf(octets: Uint8Array): bigint {
  return BigInt(`0x${Buffer.from(octets).toString('hex')}`);
}

/**
 * Returns the addresses of one family as numbers, in a few milliseconds for thousands of addresses.
 * @param texts addresses in canonical form with prefix length; other texts are skipped
 */
export function numbersOf(texts: readonly string[], family: AddressFamily): Set<bigint> {
  const isIpv4 = family === AddressFamily.ipv4;
  const own = texts.flatMap((text) => (isIpv4 ? /^[\d.]+(?=\/)/ : /^[0-9a-f]*:[0-9a-f:]*(?=\/)/).exec(text) ?? []);
  return new Set(own.map(isIpv4 ? ipv4Number : ipv6Number));
}

/** Returns the items of a list from an index on, modulo its length, and then those before. */
export function rotate<T>(list: readonly T[], by: number): T[] {
  const start = by % list.length;
  return [...list.slice(start), ...list.slice(0, start)];
}

function ipv4Number(text: string): bigint {
  return BigInt(text.split('.').reduce((number, octet) => number * 256 + Number(octet), 0));
}

function ipv6Number(text: string): bigint {
  const [left = [], right = []] = text.split('::').map((part) => (part === '' ? [] : part.split(':')));
  const zeros = Array<string>(Math.max(0, 8 - left.length - right.length)).fill('0');
  return BigInt(`0x${[...left, ...zeros, ...right].map((group) => group.padStart(4, '0')).join('')}`);
}

/**
 * Returns the addresses that no interface can have: network and broadcast address, or the subnet-router anycast address (RFC
 * 4291, 2.6.1).
 */
function reservedIn({ family, prefixLength, first, last }: Block): Interval[] {
  if (family === AddressFamily.ipv6) return prefixLength < 127 ? [{ first, last: first }] : [];
  if (prefixLength >= 31) return [];
  return [
    { first, last: first },
    { first: last, last },
  ];
}

function without(whole: Interval, taken: readonly Interval[]): Interval[] {
  let rest = whole.first <= whole.last ? [whole] : [];
  for (const { first, last } of taken) {
    rest = rest.flatMap((each) => {
      if (last < each.first || first > each.last) return [each];
      const before = { first: each.first, last: first - 1n };
      const after = { first: last + 1n, last: each.last };
      return [before, after].filter((part) => part.first <= part.last);
    });
  }
  return rest;
}

interface Block extends Interval {
  family: AddressFamily;
  prefixLength: number;
}

/** Parses an address, or a network: an address with prefix length. */
function parseBlock(text: string): Block {
  const cidr = text.includes('/') ? text : `${text}/${text.includes(':') ? 128 : 32}`;
  const { family, octets, prefixLength } = parseCidr(cidr);
  const first = numberOf(octets);
  const hostBits = BigInt(8 * octets.length - prefixLength);
  return { family, prefixLength, first, last: first + (1n << hostBits) - 1n };
}

function toOctets(value: bigint, family: AddressFamily): Uint8Array {
  const length = family === AddressFamily.ipv4 ? 4 : 16;
  return Uint8Array.from(Buffer.from(value.toString(16).padStart(2 * length, '0'), 'hex'));
}
