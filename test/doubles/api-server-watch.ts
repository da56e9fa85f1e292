import type { ServerResponse } from 'node:http';
import { toServedVersion } from './api-server-convert.ts';
import { apiVersionOf, type ResourceType } from './api-server-resources.ts';
import type { Selector } from './api-server-selectors.ts';
import { expired } from './api-server-status.ts';
import type { ObjectStore, StoreChange } from './api-server-store.ts';
import type { KubeObject } from './api-server-types.ts';

export interface WatchRequest {
  type: ResourceType;
  /** Version the objects are served in. */
  version: string;
  namespace?: string;
  selector: Selector;
  /** Empty or `0`: everything there is comes first, as ADDED. */
  resourceVersion: string;
  allowBookmarks: boolean;
  /** The server ends the watch then. */
  timeoutSeconds?: number;
}

type WatchEventType = 'ADDED' | 'MODIFIED' | 'DELETED';

/** One open watch: a chunked answer with one JSON object a line. */
export class WatchStream {
  readonly #store: ObjectStore;
  readonly #request: WatchRequest;
  readonly #response: ServerResponse;

  constructor(store: ObjectStore, request: WatchRequest, response: ServerResponse) {
    this.#store = store;
    this.#request = request;
    this.#response = response;
  }

  /** Sends what happened since the version asked for, then everything that happens, until either side ends it. */
  async run(): Promise<void> {
    this.#response.writeHead(200, { 'Content-Type': 'application/json', 'Transfer-Encoding': 'chunked' });
    this.#response.flushHeaders();
    const closed = new Promise<void>((resolve) => this.#response.once('close', resolve));
    if (!this.#sendPast()) {
      this.#response.end();
      return closed;
    }
    using _listening = this.#store.onChange((change) => this.#sendChange(change));
    const { timeoutSeconds } = this.#request;
    const timer = timeoutSeconds === undefined ? undefined : setTimeout(() => this.end(), timeoutSeconds * 1000);
    await closed;
    clearTimeout(timer);
  }

  /** A bookmark with the current version, if the client wants bookmarks. */
  bookmark(): void {
    if (!this.#request.allowBookmarks) return;
    const { type, version } = this.#request;
    const metadata = { resourceVersion: String(this.#store.resourceVersion), creationTimestamp: null };
    this.#write('BOOKMARK', { kind: type.kind, apiVersion: apiVersionOf(type, version), metadata });
  }

  /** Ends the answer in an orderly way, as the API server does after some minutes. */
  end(): void {
    this.#response.end();
  }

  /** @returns `false` after telling the client that its version is too old */
  #sendPast(): boolean {
    const { type, namespace, resourceVersion } = this.#request;
    if (resourceVersion === '' || resourceVersion === '0') {
      for (const object of this.#store.list(type, namespace))
        if (this.#request.selector(object)) this.#send('ADDED', object);
      return true;
    }
    const changes = this.#store.changesAfter(Number(resourceVersion));
    if (changes === undefined) {
      const error = expired(`too old resource version: ${resourceVersion} (${this.#store.compactedVersion})`);
      this.#write('ERROR', error.toStatus());
      return false;
    }
    for (const change of changes) this.#sendChange(change);
    return true;
  }

  /** To a watch with a selector, an object that starts to match was added, and one that stops to match was deleted. */
  #sendChange({ type, before, after, last }: StoreChange): void {
    if (type !== this.#request.type) return;
    const isNow = after !== undefined && this.#selects(after);
    const wasBefore = before !== undefined && this.#selects(before);
    if (isNow) this.#send(wasBefore ? 'MODIFIED' : 'ADDED', after);
    else if (wasBefore) this.#send('DELETED', last ?? after ?? before);
  }

  #selects(object: KubeObject): boolean {
    const { namespace, selector } = this.#request;
    return (namespace === undefined || object.metadata.namespace === namespace) && selector(object);
  }

  #send(eventType: WatchEventType, object: KubeObject): void {
    this.#write(eventType, toServedVersion(this.#request.type, object, this.#request.version));
  }

  #write(eventType: string, object: object): void {
    if (!this.#response.writableEnded) this.#response.write(`${JSON.stringify({ type: eventType, object })}\n`);
  }
}
