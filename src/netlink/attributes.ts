import { formatAttribute, type NetlinkAttribute, pad } from 'netlink';

const headerBytes = 4;
/** `NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`, and the mask of the remaining bits. */
const flags = { nested: 0x8000, no: 0x4000 };
const typeMask = 0x3fff;

/** An attribute to send: its payload as bytes, or as further attributes. */
export interface Attribute {
  type: number;
  value: Uint8Array | Attribute[];
}

/** The attributes as one stream, each padded to 4 bytes, containers marked as such. */
export function encodeAttributes(attributes: Attribute[]): Uint8Array[] {
  return attributes.flatMap(({ type, value }) => {
    const nested = Array.isArray(value);
    return pad(formatAttribute({ type, nested, data: nested ? encodeAttributes(value) : value }));
  });
}

/** The attributes of a message, the last one of each type. */
export function decodeAttributes(stream: Buffer): Map<number, Buffer> {
  const attributes = new Map<number, Buffer>();
  walk(stream, (typeAndFlags, data) => attributes.set(typeAndFlags & typeMask, data));
  return attributes;
}

/** The attributes of a message in their order; types may repeat. */
export function listAttributes(stream: Buffer): NetlinkAttribute[] {
  const attributes: NetlinkAttribute[] = [];
  walk(stream, (typeAndFlags, data) => {
    const [nested, no] = [(typeAndFlags & flags.nested) !== 0, (typeAndFlags & flags.no) !== 0];
    attributes.push({ type: typeAndFlags & typeMask, nested, no, data });
  });
  return attributes;
}

/**
 * Creates no object for each attribute: a dump of a node's links has thousands of them, and a pod waits for it.
 * @throws RangeError if an attribute does not fit into what is left
 */
function walk(stream: Buffer, visit: (typeAndFlags: number, data: Buffer) => void): void {
  // In the byte order of the processor, which is little-endian on all supported platforms.
  for (let offset = 0; offset < stream.length; ) {
    const left = stream.length - offset;
    if (left < headerBytes) throw new RangeError('an attribute is cut off');
    const length = stream.readUInt16LE(offset);
    if (length < headerBytes || length > left) throw new RangeError(`an attribute has the length ${length}`);
    visit(stream.readUInt16LE(offset + 2), stream.subarray(offset + headerBytes, offset + length));
    // Each attribute begins at a multiple of four.
    offset += (length + 3) & ~3;
  }
}

/** A string with its final NUL byte. */
export function encodeString(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

/** The text up to the first NUL byte, or all of it. */
export function decodeString(data: Buffer): string;
export function decodeString(data: Buffer | undefined): string | undefined;
export function decodeString(data: Buffer | undefined): string | undefined {
  if (data === undefined) return undefined;
  const end = data.indexOf(0);
  return data.toString('utf8', 0, end === -1 ? data.length : end);
}

/** Lower case with colons; none if the payload is missing or empty. */
export function decodeHardwareAddress(data: Buffer | undefined): string | undefined {
  if (data === undefined || data.length === 0) return undefined;
  return [...data].map((octet) => octet.toString(16).padStart(2, '0')).join(':');
}
