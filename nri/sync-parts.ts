import { StatusCode, TtrpcError } from './ttrpc/status.ts';
import type { WireContainer, WirePod } from './wire.ts';

export interface SyncState {
  pods: WirePod[];
  containers: WireContainer[];
}

/** Limits for all parts together, far above what a runtime can send within its time limit. */
export interface SyncLimits {
  bytes: number;
  /** Pods and containers. An empty one takes two bytes on the wire and some hundred in memory. */
  entries: number;
}

export class SyncParts {
  readonly #limits: SyncLimits;
  #bytes = 0;
  #entries = 0;
  #state: SyncState = { pods: [], containers: [] };

  constructor(limits: SyncLimits) {
    this.#limits = limits;
  }

  /**
   * Accounts for a part. Call it before decoding the part, since decoding takes the memory.
   * @throws TtrpcError `resourceExhausted`; the parts collected so far are dropped
   */
  reserve(payload: Buffer): void {
    const { bytes, entries } = this.#limits;
    this.#bytes += payload.length;
    this.#entries += countSubmessages(payload);
    if (this.#bytes <= bytes && this.#entries <= entries) return;
    this.#reset();
    throw new TtrpcError(StatusCode.resourceExhausted, `more than ${bytes} bytes or ${entries} entries to synchronize`);
  }

  /** @returns all pods and containers after the last part; `undefined` before */
  add(part: { pods?: WirePod[]; containers?: WireContainer[]; more?: boolean }): SyncState | undefined {
    for (const pod of part.pods ?? []) this.#state.pods.push(pod);
    for (const container of part.containers ?? []) this.#state.containers.push(container);
    return part.more === true ? undefined : this.#reset();
  }

  #reset(): SyncState {
    const state = this.#state;
    this.#state = { pods: [], containers: [] };
    this.#bytes = 0;
    this.#entries = 0;
    return state;
  }
}

/**
 * Counts the length-delimited fields of an encoded message: its submessages, if the message has no strings of its own.
 * Accepts any bytes; in invalid data it counts the fields before the error.
 * Source: protobuf encoding, "Message structure".
 */
function countSubmessages(message: Buffer): number {
  let count = 0;
  let offset = 0;
  const readVarint = () => {
    let value = 0;
    for (let factor = 1; offset < message.length; factor *= 128) {
      const byte = message[offset++]!;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (offset < message.length) {
    const wireType = readVarint() % 8;
    if (wireType === 0) readVarint();
    else if (wireType === 1) offset += 8;
    else if (wireType === 5) offset += 4;
    else if (wireType === 2) {
      count++;
      const bytes = readVarint();
      offset += bytes;
    } else break;
  }
  return count;
}
