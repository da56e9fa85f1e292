import type { ServerResponse } from 'node:http';
import { type Selection, watchEventOf } from './api-server-requests.ts';
import { ApiStatusError } from './api-server-status.ts';
import type { ObjectStore, StoreChange } from './api-server-store.ts';

/** One open watch: a chunked answer with one JSON object per line. */
export class WatchStream {
  readonly #store: ObjectStore;
  readonly #selection: Selection;
  readonly #response: ServerResponse;

  constructor(store: ObjectStore, selection: Selection, response: ServerResponse) {
    this.#store = store;
    this.#selection = selection;
    this.#response = response;
  }

  /**
   * Sends the changes since a version, then all new ones, until either side ends it.
   * @param resourceVersion none: all existing objects come first
   */
  async run(resourceVersion: string | undefined): Promise<void> {
    this.#response.writeHead(200, { 'Content-Type': 'application/json' });
    this.#response.flushHeaders();
    const closed = new Promise<void>((resolve) => this.#response.once('close', resolve));
    try {
      if (resourceVersion === undefined) this.#sendAll();
      else for (const change of this.#store.changesAfter(Number(resourceVersion))) this.#sendChange(change);
    } catch (error) {
      if (!(error instanceof ApiStatusError)) throw error;
      this.#write('ERROR', error.toStatus());
      this.#response.end();
      return closed;
    }
    using _listening = this.#store.onChange((change) => this.#sendChange(change));
    await closed;
  }

  /** Sends the current version. */
  bookmark(): void {
    const { kind } = this.#selection.resource;
    this.#write('BOOKMARK', { kind, metadata: { resourceVersion: String(this.#store.resourceVersion) } });
  }

  /** Ends the answer in an orderly way, as the API server does after some minutes. */
  end(): void {
    this.#response.end();
  }

  #sendAll(): void {
    const { resource, selects } = this.#selection;
    for (const object of this.#store.list(resource).filter(selects)) this.#write('ADDED', object);
  }

  #sendChange(change: StoreChange): void {
    const event = watchEventOf(this.#selection, change);
    if (event !== undefined) this.#write(event.type, event.object);
  }

  #write(type: string, object: object | undefined): void {
    if (!this.#response.writableEnded) this.#response.write(`${JSON.stringify({ type, object })}\n`);
  }
}
