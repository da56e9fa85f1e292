import { FieldReader } from './field-reader.ts';
import { StatusCode, TtrpcError } from './ttrpc/status.ts';
import type { WireContainer, WirePod } from './wire.ts';

export interface SyncState {
  pods: WirePod[];
  containers: WireContainer[];
}

/** Limits for all parts together. */
export interface SyncLimits {
  /** Size of the trimmed parts, in bytes. */
  bytes: number;
  /** Number of pods and containers. An empty one takes two bytes on the wire and some hundred in memory. */
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
   * Counts a trimmed part against the limits. Call it before decoding the part, since decoding takes the memory.
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

  /** Adds a decoded part. @returns all pods and containers after the last part; `undefined` before */
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

/** Counts the submessages of an encoded message that has no string fields of its own. Stops at an invalid field. */
function countSubmessages(message: Buffer): number {
  const fields = new FieldReader(message);
  let count = 0;
  while (fields.next()) if (fields.wireType === 2) count++;
  return count;
}
