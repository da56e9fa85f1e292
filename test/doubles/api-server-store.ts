import type { ResourceType } from './api-server-resources.ts';
import type { KubeObject } from './api-server-types.ts';

/** One change: an object appeared (`before` missing), changed, or went (`after` missing). */
export interface StoreChange {
  resourceVersion: number;
  type: ResourceType;
  before?: KubeObject;
  /** When the object went: what it was last, with the resourceVersion of its end. */
  last?: KubeObject;
  after?: KubeObject;
}

/** The objects of all kinds, their common version counter, and the history that watches start from. */
export class ObjectStore {
  readonly #objects = new Map<string, { type: ResourceType; object: KubeObject }>();
  readonly #listeners = new Set<(change: StoreChange) => void>();
  #history: StoreChange[] = [];
  #resourceVersion = 1000;
  #compactedVersion = 1000;

  /** The version of the last change of anything. */
  get resourceVersion(): number {
    return this.#resourceVersion;
  }

  /** Changes up to this version are forgotten. */
  get compactedVersion(): number {
    return this.#compactedVersion;
  }

  get(type: ResourceType, namespace: string | undefined, name: string): KubeObject | undefined {
    const entry = this.#objects.get(keyOf(type, namespace, name));
    return entry === undefined ? undefined : structuredClone(entry.object);
  }

  /** Sorted by namespace and name, as etcd gives them back. */
  list(type: ResourceType, namespace?: string, isWanted: (object: KubeObject) => boolean = () => true): KubeObject[] {
    return [...this.#objects]
      .filter(
        ([, entry]) =>
          entry.type === type &&
          (namespace === undefined || entry.object.metadata.namespace === namespace) &&
          isWanted(entry.object),
      )
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([, entry]) => structuredClone(entry.object));
  }

  all(): { type: ResourceType; object: KubeObject }[] {
    return [...this.#objects.values()].map(({ type, object }) => ({ type, object: structuredClone(object) }));
  }

  /** Stores an object, new or changed, under the next resourceVersion, and returns it as stored. */
  put(type: ResourceType, object: KubeObject): KubeObject {
    const key = keyOf(type, object.metadata.namespace, object.metadata.name);
    const before = this.#objects.get(key)?.object;
    const after = structuredClone(object);
    after.metadata.resourceVersion = String(++this.#resourceVersion);
    this.#objects.set(key, { type, object: after });
    this.#publish({ resourceVersion: this.#resourceVersion, type, ...(before === undefined ? {} : { before }), after });
    return structuredClone(after);
  }

  /** Forgets an object and returns its last state. */
  remove(type: ResourceType, object: KubeObject): KubeObject {
    const key = keyOf(type, object.metadata.namespace, object.metadata.name);
    const before = this.#objects.get(key)?.object ?? object;
    this.#objects.delete(key);
    const last = structuredClone(before);
    last.metadata.resourceVersion = String(++this.#resourceVersion);
    this.#publish({ resourceVersion: this.#resourceVersion, type, before, last });
    return structuredClone(last);
  }

  /** @returns `undefined` when changes after `resourceVersion` are already forgotten */
  changesAfter(resourceVersion: number): StoreChange[] | undefined {
    if (resourceVersion < this.#compactedVersion) return undefined;
    return this.#history.filter((change) => change.resourceVersion > resourceVersion);
  }

  /** Forgets the history, as etcd does every few minutes: whoever comes with an older version gets 410. */
  compact(): void {
    this.#history = [];
    // One step ahead, so that a client that is up to date finds its version too old as well.
    this.#compactedVersion = ++this.#resourceVersion;
  }

  onChange(listener: (change: StoreChange) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  #publish(change: StoreChange): void {
    this.#history.push(change);
    for (const listener of [...this.#listeners]) listener(change);
  }
}

function keyOf(type: ResourceType, namespace: string | undefined, name: string): string {
  return [type.group, type.plural, namespace ?? '', name].join('\0');
}
