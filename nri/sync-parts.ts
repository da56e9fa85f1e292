import { StatusCode, TtrpcError } from './ttrpc/status.ts';
import type { WireContainer, WirePod } from './wire.ts';

/** What exists in the runtime, as it is on the wire. */
export interface SyncState {
  pods: WirePod[];
  containers: WireContainer[];
}

/** Puts together the parts in which a runtime tells what exists. */
export class SyncParts {
  readonly #maxBytes: number;
  #bytes = 0;
  #state: SyncState = { pods: [], containers: [] };

  /** @param maxBytes the most that all parts together may be; far more than a runtime can send within its time limit */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * @returns everything, with the last part; `undefined` before
   * @throws TtrpcError `resourceExhausted`; what was collected so far is dropped
   */
  add(part: { pods?: WirePod[]; containers?: WireContainer[]; more?: boolean }, bytes: number): SyncState | undefined {
    this.#bytes += bytes;
    if (this.#bytes > this.#maxBytes) {
      this.#reset();
      throw new TtrpcError(StatusCode.resourceExhausted, `more than ${this.#maxBytes} bytes to synchronize`);
    }
    for (const pod of part.pods ?? []) this.#state.pods.push(pod);
    for (const container of part.containers ?? []) this.#state.containers.push(container);
    return part.more === true ? undefined : this.#reset();
  }

  #reset(): SyncState {
    const state = this.#state;
    this.#state = { pods: [], containers: [] };
    this.#bytes = 0;
    return state;
  }
}
