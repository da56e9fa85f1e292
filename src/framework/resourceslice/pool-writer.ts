import type { Logger } from '../../lib/logger.ts';
import { isKubeError, type OwnerReference } from '../kube/index.ts';
import { copyTaintTimes, findDroppedFields, isSameSpec } from './compare.ts';
import { formatProblems, SliceError, type SliceProblem } from './errors.ts';
import type { Pool, ResourceSlice, SliceSpec } from './model.ts';
import { type PoolPlan, type PublishedPool, planPool } from './pool-plan.ts';
import type { SliceApi } from './slice-api.ts';

/** Number of remembered writes: ample for recent writes whose watch events have not arrived yet. */
const maxRemembered = 1_000;

export interface PoolWriterOptions {
  driver: string;
  nodeName: string;
  logger: Logger;
  report: (error: SliceError) => void;
}

/** Writes single pools to the API server with as few requests as possible, and remembers its writes. */
export class PoolWriter {
  readonly #api: SliceApi;
  readonly #options: PoolWriterOptions;
  readonly #published = new Map<string, PublishedPool>();
  /** Resource versions that resulted from this writer's writes, and UIDs of the slices that it deleted. */
  readonly #ours = new Set<string>();
  readonly #reported = new Set<string>();

  constructor(api: SliceApi, options: PoolWriterOptions) {
    this.#api = api;
    this.#options = options;
  }

  isOurs({ metadata: { resourceVersion = '', uid = '' } }: ResourceSlice): boolean {
    return this.#ours.has(resourceVersion) || this.#ours.has(uid);
  }

  /**
   * Writes the differences between a pool and its slices.
   * @param actual existing slices of the pool
   * @returns whether the write reverted changes by other clients
   * @throws KubeError, SliceError
   */
  async write(name: string, pool: Pool, actual: ResourceSlice[], signal: AbortSignal): Promise<boolean> {
    const { driver, nodeName, logger } = this.#options;
    const published = this.#published.get(name);
    const plan = planPool({ driver, nodeName, poolName: name, pool, actual, published });
    const { generation, contents, obsolete, writes, exact } = plan;
    const hasWork = obsolete.length + writes.length > 0;
    const kept = new Map(published?.kept);
    // Forgets slices that the API server has exactly as wanted: fields that it once dropped are sent again when they are wanted
    // again.
    for (const each of exact) kept.delete(each);
    if (hasWork) {
      await this.#delete(obsolete, signal);
      const owner = writes.length > 0 ? await this.#owner(signal) : undefined;
      for (const { spec, stored, name } of await this.#writeAll(plan, owner, signal)) {
        kept.delete(name);
        if (!isSameSpec(stored, spec)) kept.set(name, { sent: withTimesOf(stored, spec), stored });
      }
    }
    // Set after all writes: if one fails, the existing slices are not the published ones.
    this.#published.set(name, { generation, contents, kept });
    this.#reportDropped(name, kept);
    if (!hasWork) return false;
    const changes = { writes: writes.length, deleted: obsolete.length };
    const facts = { pool: name, generation, devices: pool.devices.length, slices: contents.length, ...changes };
    logger.info(
      facts,
      plan.isRepair ? 'restored ResourceSlices that another client had changed' : 'published ResourceSlices',
    );
    return plan.isRepair;
  }

  async remove(name: string, actual: ResourceSlice[], signal: AbortSignal): Promise<void> {
    this.#published.delete(name);
    await this.#delete(actual, signal);
    this.#options.logger.info({ pool: name, deleted: actual.length }, 'pool withdrawn');
  }

  async #delete(slices: ResourceSlice[], signal: AbortSignal): Promise<void> {
    for (const slice of slices) {
      this.#remember(slice.metadata.uid);
      await this.#api.delete(slice, signal);
    }
  }

  async #writeAll(
    { writes }: PoolPlan,
    owner: OwnerReference | undefined,
    signal: AbortSignal,
  ): Promise<{ name: string; spec: SliceSpec; stored: SliceSpec }[]> {
    const written: { name: string; spec: SliceSpec; stored: SliceSpec }[] = [];
    for (const { name, spec, existing } of writes) {
      const metadata = { ...existing?.metadata, name, ...(owner === undefined ? {} : { ownerReferences: [owner] }) };
      const slice = { metadata, spec };
      const write = existing === undefined ? this.#api.create(slice, signal) : this.#api.replace(slice, signal);
      const stored = await write.catch((error: unknown) => {
        throw listsRefusal(error, spec) ?? error;
      });
      this.#remember(stored.metadata.resourceVersion);
      written.push({ name, spec, stored: stored.spec });
    }
    return written;
  }

  /**
   * Reads the owner at every write: if the Node was deleted and created again, it has another UID, and its old slices are
   * deleted.
   */
  async #owner(signal: AbortSignal): Promise<OwnerReference> {
    const uid = await this.#api.nodeUid(signal);
    return { apiVersion: 'v1', kind: 'Node', name: this.#options.nodeName, uid, controller: true };
  }

  #remember(mark: string | undefined): void {
    if (mark === undefined) return;
    this.#ours.add(mark);
    for (const oldest of this.#ours) {
      if (this.#ours.size <= maxRemembered) break;
      this.#ours.delete(oldest);
    }
  }

  #reportDropped(pool: string, kept: PublishedPool['kept']): void {
    const problems = [...kept.values()].flatMap(({ sent, stored }) => findDroppedFields(sent, stored));
    // Forgets fields that are stored again or no longer sent, so that they are reported if they are dropped once more.
    const dropped = new Set(problems.map((problem) => dropKey(pool, problem)));
    for (const key of this.#reported) if (key.startsWith(`${pool} `) && !dropped.has(key)) this.#reported.delete(key);
    const fresh = problems.filter((problem) => !this.#reported.has(dropKey(pool, problem)));
    if (fresh.length === 0) return;
    for (const problem of fresh) this.#reported.add(dropKey(pool, problem));
    const message = `pool ${pool} is published without some of its fields: ${formatProblems(fresh)}`;
    const hint = 'these fields need a feature gate that is off in the API server, or a newer API server';
    this.#options.report(new SliceError('slice-fields-dropped', message, { pool, problems: fresh, hint }));
  }
}

/** Returns the error for refused lists; `undefined` if the slice is refused for another reason. */
function listsRefusal(error: unknown, { pool: { name: pool }, devices = [] }: SliceSpec): SliceError | undefined {
  if (!isKubeError(error, 'api-invalid')) return undefined;
  const attributes = devices.flatMap((device) => Object.entries(device.attributes ?? {}));
  const lists = attributes.filter(([, value]) => Object.values(value).some(Array.isArray)).map(([name]) => name);
  const refused = [...new Set(lists)].filter((name) => error.message.includes(`attributes[${name}]`));
  if (refused.length === 0) return undefined;
  const names = refused.join(', ');
  return new SliceError(
    'slice-lists-refused',
    `pool ${pool}: the API server refuses lists as values of the attributes ${names}`,
    {
      // Leaves out the server's answer, which has a sentence for each device.
      pool,
      hint: 'publish single values; or switch on the feature gate DRAListTypeAttributes of the API server and the scheduler (Kubernetes 1.36 or later)',
    },
  );
}

/** Returns the wanted spec with the times that the API server has added to taints. */
function withTimesOf({ devices: stored = [] }: SliceSpec, { devices, ...spec }: SliceSpec): SliceSpec {
  return { ...spec, ...(devices && { devices: copyTaintTimes(devices, stored) }) };
}

/** Returns a key of a kind of field: the same field of another device is not reported again. */
function dropKey(pool: string, { field }: SliceProblem): string {
  return `${pool} ${field.split(/[[.]/, 1)[0]}`;
}
