import { putU16At, u16At, u32At } from './messages.ts';

const headerBytes = 4;
const mostBytes = 0xffff;
const nestedFlag = 0x8000;
/** Mask that removes `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` from a type. */
const typeMask = 0x3fff;

/** An attribute to send. `value` is its payload: bytes, or nested attributes. */
export interface Attribute {
  type: number;
  value: Uint8Array | Attribute[];
}

/**
 * Encodes attributes, each padded to 4 bytes. Nested ones are marked.
 * @throws RangeError if an attribute is longer than 64 KiB
 */
export function encodeAttributes(attributes: readonly Attribute[]): Uint8Array[] {
  return attributes.map(({ type, value }) => {
    const isNested = Array.isArray(value);
    const payload = isNested ? Buffer.concat(encodeAttributes(value)) : value;
    const length = headerBytes + payload.length;
    if (length > mostBytes) throw new RangeError(`netlink attribute ${type} is too long: ${length} bytes`);
    const attribute = Buffer.alloc((length + 3) & ~3);
    putU16At(attribute, 0, length);
    putU16At(attribute, 2, isNested ? type | nestedFlag : type);
    attribute.set(payload, headerBytes);
    return attribute;
  });
}

/**
 * Attributes of a message; of repeated types, the last one counts. Payloads are extracted on demand: a link has some sixty
 * attributes, a node hundreds of links, and most attributes are never read.
 */
export class Attributes {
  readonly #stream: Buffer;
  /**
   * Offset of each type's attribute. The types are small numbers, so an array is used: a map of sixty entries for each link
   * would take four times the memory.
   */
  readonly #places: (number | undefined)[] = [];

  /** @throws RangeError if an attribute exceeds the rest of the stream */
  constructor(stream: Buffer) {
    this.#stream = stream;
    const [places, end] = [this.#places, stream.length];
    // The loop makes no calls: the links of a pod have a thousand attributes, and without an optimizing compiler each call
    // takes longer than the read.
    for (let at = 0; at < end; ) {
      const length = (stream[at] as number) | ((stream[at + 1] as number) << 8);
      if (!(length >= headerBytes && length <= end - at)) throw brokenAt(stream, at);
      places[((stream[at + 2] as number) | ((stream[at + 3] as number) << 8)) & typeMask] = at;
      at += (length + 3) & ~3;
    }
  }

  get(type: number): Buffer | undefined {
    const at = this.#places[type];
    return at === undefined ? undefined : payloadAt(this.#stream, at);
  }

  /**
   * Returns an attribute's unsigned number; `undefined` if there is no such attribute. @throws RangeError if the attribute
   * has another length
   */
  number(type: number, bytes: 1 | 4 = 4): number | undefined {
    const stream = this.#stream;
    const at = this.#places[type];
    if (at === undefined) return undefined;
    if (lengthAt(stream, at) !== headerBytes + bytes) {
      throw new RangeError(`attribute ${type} has ${lengthAt(stream, at) - headerBytes} octets, not ${bytes}`);
    }
    return bytes === 1 ? stream[at + headerBytes] : u32At(stream, at + headerBytes);
  }

  has(type: number): boolean {
    return this.#places[type] !== undefined;
  }
}

/**
 * Returns the attributes of a message in order; types may repeat.
 * @throws RangeError if an attribute exceeds the rest of the stream
 */
export function listAttributes(stream: Buffer): { type: number; data: Buffer }[] {
  const attributes: { type: number; data: Buffer }[] = [];
  for (let at = 0; at < stream.length; at = nextAfter(stream, at)) {
    attributes.push({ type: typeAt(stream, at), data: payloadAt(stream, at) });
  }
  return attributes;
}

function typeAt(stream: Buffer, at: number): number {
  return u16At(stream, at + 2) & typeMask;
}

function payloadAt(stream: Buffer, at: number): Buffer {
  return stream.subarray(at + headerBytes, at + lengthAt(stream, at));
}

/** Returns the offset of the next attribute, a multiple of four. */
function nextAfter(stream: Buffer, at: number): number {
  return at + ((lengthAt(stream, at) + 3) & ~3);
}

function lengthAt(stream: Buffer, at: number): number {
  const length = u16At(stream, at);
  if (length < headerBytes || length > stream.length - at) throw brokenAt(stream, at);
  return length;
}

function brokenAt(stream: Buffer, at: number): RangeError {
  if (stream.length - at < headerBytes) return new RangeError('an attribute is cut off');
  return new RangeError(`an attribute has the length ${u16At(stream, at)}`);
}

/** Encodes a string with a final NUL byte. */
export function encodeString(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

/** Decodes text up to the first NUL byte, or to the end. */
export function decodeString(data: Buffer): string;
export function decodeString(data: Buffer | undefined): string | undefined;
export function decodeString(data: Buffer | undefined): string | undefined {
  if (data === undefined) return undefined;
  const end = data.indexOf(0);
  return data.toString('utf8', 0, end === -1 ? data.length : end);
}

/** Formats a hardware address in lower case with colons; `undefined` if the payload is missing or empty. */
export function decodeHardwareAddress(data: Buffer | undefined): string | undefined {
  if (data === undefined || data.length === 0) return undefined;
  // Ethernet addresses take a shortcut: a regular expression takes several times as long, and each link has two addresses.
  if (data.length === 6) {
    const hex = data.toString('hex');
    return `${hex.slice(0, 2)}:${hex.slice(2, 4)}:${hex.slice(4, 6)}:${hex.slice(6, 8)}:${hex.slice(8, 10)}:${hex.slice(10)}`;
  }
  return data.toString('hex').replace(/..(?=.)/g, '$&:');
}
