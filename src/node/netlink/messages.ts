/**
 * Offsets in `struct nlmsghdr`, and its size, in bytes. All numbers are in the byte order of the processor, which is
 * little-endian.
 */
export const messageHeader = { bytes: 16, length: 0, type: 4, flags: 6, seq: 8 } as const;

/** A message from the kernel. */
export interface NetlinkMessage {
  type: number;
  /** Flags: `NLM_F_*`. */
  flags: number;
  /** Sequence number of the request. */
  seq: number;
  /** Payload after the header, as a part of the datagram. */
  data: Buffer;
}

// The functions read byte by byte: each pod causes hundreds of these calls, and the methods of Buffer call four functions to
// check their arguments.

export function u16At(bytes: Uint8Array, at: number): number {
  return (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
}

export function u32At(bytes: Uint8Array, at: number): number {
  const low = (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
  return (low | ((bytes[at + 2] as number) << 16) | ((bytes[at + 3] as number) << 24)) >>> 0;
}

export function putU16At(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value;
  bytes[at + 1] = value >>> 8;
}

function putU32At(bytes: Uint8Array, at: number, value: number): void {
  putU16At(bytes, at, value);
  putU16At(bytes, at + 2, value >>> 16);
}

/** Returns the offset of the message that follows the one at `at`. It is a multiple of four. */
export function endOfMessage(bytes: Uint8Array, at: number): number {
  return at + Math.max(messageHeader.bytes, (u32At(bytes, at + messageHeader.length) + 3) & ~3);
}

/** Encodes a request. The kernel itself adds the sender. */
export function encodeMessage(type: number, flags: number, seq: number, payload: readonly Uint8Array[]): Buffer {
  const message = Buffer.alloc(payload.reduce((sum, { length }) => sum + length, messageHeader.bytes as number));
  putU32At(message, messageHeader.length, message.length);
  putU16At(message, messageHeader.type, type);
  putU16At(message, messageHeader.flags, flags);
  putU32At(message, messageHeader.seq, seq);
  let at: number = messageHeader.bytes;
  for (const part of payload) {
    message.set(part, at);
    at += part.length;
  }
  return message;
}

/** Decodes the messages of a datagram. @throws RangeError if a message exceeds the datagram */
export function decodeMessages(datagram: Buffer): NetlinkMessage[] {
  const messages: NetlinkMessage[] = [];
  for (let at = 0; at < datagram.length; at = endOfMessage(datagram, at)) {
    const left = datagram.length - at;
    const length = left < messageHeader.bytes ? 0 : u32At(datagram, at);
    if (length < messageHeader.bytes || length > left) throw new RangeError(`a message has the length ${length}`);
    messages.push({
      type: u16At(datagram, at + messageHeader.type),
      flags: u16At(datagram, at + messageHeader.flags),
      seq: u32At(datagram, at + messageHeader.seq),
      data: datagram.subarray(at + messageHeader.bytes, at + length),
    });
  }
  return messages;
}
