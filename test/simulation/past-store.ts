import { type KubeObject, ObjectStore, type Resource, type StoreChange } from '../doubles/api-server-store.ts';

/** The objects as they were some time ago: what an API server answers from whose cache is behind. For reads only. */
export class PastStore extends ObjectStore {
  readonly #changes: readonly StoreChange[];

  /** @param changes all of them, up to that time */
  constructor(changes: readonly StoreChange[]) {
    super();
    this.#changes = changes;
  }

  override get resourceVersion(): number {
    return this.#changes.at(-1)?.resourceVersion ?? super.resourceVersion;
  }

  override find(resource: Resource, namespace: string | undefined, name: string): KubeObject | undefined {
    const isIt = ({ metadata }: KubeObject) => metadata.name === name && metadata.namespace === namespace;
    return this.#changes.findLast((change) => {
      const { after, before } = change;
      const object = after ?? before;
      return change.resource === resource && object !== undefined && isIt(object);
    })?.after;
  }

  override list(resource: Resource, namespace?: string): KubeObject[] {
    const names = new Map<string, KubeObject['metadata']>();
    for (const { resource: changed, after } of this.#changes)
      if (
        changed === resource &&
        after !== undefined &&
        (namespace ?? after.metadata.namespace) === after.metadata.namespace
      )
        names.set(`${after.metadata.namespace}/${after.metadata.name}`, after.metadata);
    const sorted = [...names].sort(([left], [right]) => (left < right ? -1 : 1));
    return sorted.flatMap(([, each]) => this.find(resource, each.namespace as string | undefined, each.name) ?? []);
  }
}
