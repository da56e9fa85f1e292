import { formatAttribute, type NetlinkAttribute, pad, parseAttributes } from 'netlink';

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
  return new Map(listAttributes(stream).map(({ type, data }) => [type, data]));
}

/** The attributes of a message in their order; types may repeat. */
export function listAttributes(stream: Buffer): NetlinkAttribute[] {
  const attributes: NetlinkAttribute[] = [];
  parseAttributes(stream, (attribute) => attributes.push(attribute));
  return attributes;
}

/** A string with its final NUL byte. */
export function encodeString(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

/** Up to the first NUL byte, or all of it. */
export function decodeString(data: Buffer): string;
export function decodeString(data: Buffer | undefined): string | undefined;
export function decodeString(data: Buffer | undefined): string | undefined {
  if (data === undefined) return undefined;
  const end = data.indexOf(0);
  return data.toString('utf8', 0, end === -1 ? data.length : end);
}

/** Hardware addresses are lower case with colons; none means an empty payload or one of zero length. */
export function decodeHardwareAddress(data: Buffer | undefined): string | undefined {
  if (data === undefined || data.length === 0) return undefined;
  return [...data].map((octet) => octet.toString(16).padStart(2, '0')).join(':');
}
