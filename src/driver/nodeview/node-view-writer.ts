import { isDeepStrictEqual } from 'node:util';
import {
  type Condition,
  isKubeError,
  type KubeErrorCode,
  type KubeRequests,
  type ObjectMeta,
} from '../../framework/kube/index.ts';
import { Background } from '../../lib/background.ts';
import { Backoff } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { passingRefusals, pauses } from '../../lib/waiting-times.ts';
import type { NodeView } from './node-view.ts';

const apiVersion = 'netdra.dev/v1alpha1';
const kind = 'NodeNetworkDevices';
/**
 * Time for which changes are collected before a write, with a random part since one event can change all nodes, and minimum
 * time between two writes of a node, ms.
 */
const collect = { leastMs: 2_000, spreadMs: 8_000, betweenMs: 10_000 };
/** Time after the start, ms, after which an earlier instance has ended in a rolling update. */
const replacedMs = 120_000;

/** Remedies for failures that end only with a change of the cluster. */
const remedies: Partial<Record<KubeErrorCode, string>> = {
  'api-unserved': 'install the CustomResourceDefinition of the chart, or set its value nodeView.enabled to false',
  'api-forbidden':
    'compare role and admission policies with those of the chart, or set its value nodeView.enabled to false',
  'api-invalid': 'the CustomResourceDefinition is of another version than the driver: install that of the chart',
};

/** `status` of a node's object. */
export interface StoredView extends NodeView {
  conditions: Condition[];
}

export interface NodeViewWriterOptions {
  /** Name of the driver. It is also the field manager of the writes. */
  driver: string;
  node: string;
  clock: Clock;
  /** Wall clock for the times in conditions. */
  now: () => Date;
  logger: Logger;
  /** Returns numbers from 0 up to 1. */
  random: () => number;
  /** Returns the UID of the Node that owns the object. @throws SliceError, KubeError */
  nodeUid: (signal: AbortSignal) => Promise<string>;
  /** Returns the UID of the Node that any part of the driver has read last. Default: the UID of the last write. */
  knownNodeUid?: () => string | undefined;
  /** Reads the view. @throws NetdraError if a source of the view cannot be read */
  read: () => NodeView;
  /** Receives each failure; all are already logged. */
  onError?: (error: unknown) => void;
}

/**
 * Writes the node's NodeNetworkDevices object when it changes. Collects the changes of some seconds in one request, and
 * writes nothing while nothing changes, even after a restart. Failures are logged and retried, and affect no other work.
 * Decision: docs/decisions/0041-a-node-shows-its-devices.md
 */
export class NodeViewWriter implements AsyncDisposable {
  readonly #kube: KubeRequests;
  readonly #options: NodeViewWriterOptions;
  readonly #background = new Background();
  readonly #retry: Backoff;
  readonly #aloneAtMs: number;
  #isContested = true;
  #nextAtMs = 0;
  /**
   * Object in the API server; `undefined` if it must be read. `status` is `undefined` if the object is missing or belongs to
   * an earlier Node.
   */
  #stored: { nodeUid: string; status: StoredView | undefined } | undefined;
  /** Number of consecutive refusals by the API server. */
  #refusals = 0;
  /** Codes of failures that were logged. */
  readonly #logged = new Set<string>();

  constructor(kube: KubeRequests, options: NodeViewWriterOptions) {
    this.#kube = kube;
    this.#options = options;
    this.#retry = new Backoff(options.clock, pauses.nodeView, () => void this.#run());
    this.#aloneAtMs = options.clock.nowMs() + replacedMs;
  }

  /** Schedules a write if the view has changed. Must be called after possible changes, and periodically. */
  note(): void {
    const { clock, random } = this.#options;
    if (this.#background.signal.aborted || this.#background.isRunning('') || this.#retry.isScheduled) return;
    if (this.#isContested && clock.nowMs() >= this.#aloneAtMs) {
      this.#isContested = false;
      this.#stored = undefined;
    }
    if (!this.#isChanged()) return;
    const collectedAfterMs = collect.leastMs + collect.spreadMs * random();
    this.#retry.after(Math.max(collectedAfterMs, this.#nextAtMs - clock.nowMs()));
  }

  async [Symbol.asyncDispose]() {
    this.#retry[Symbol.dispose]();
    await this.#background[Symbol.asyncDispose]();
  }

  #isChanged(): boolean {
    try {
      if (this.#stored === undefined) return true;
      const { nodeUid, status } = this.#stored;
      const { knownNodeUid = () => nodeUid } = this.#options;
      return knownNodeUid() !== nodeUid || !isDeepStrictEqual(status, this.#wanted());
    } catch {
      // The attempt to write reports the failure.
      return true;
    }
  }

  async #run(): Promise<void> {
    await this.#background.run('', async (signal) => {
      try {
        await this.#write(signal);
        this.#retry.reset();
        this.#refusals = 0;
      } catch (error) {
        signal.throwIfAborted();
        this.#failed(error);
      }
    });
    // The view may have changed during the write.
    this.note();
  }

  async #write(signal: AbortSignal): Promise<void> {
    const { clock, driver, node, logger } = this.#options;
    // The UID is read each time: when a Node is deleted and registered again, the API server deletes the earlier object.
    const nodeUid = await this.#options.nodeUid(signal);
    if (this.#stored?.nodeUid !== nodeUid) this.#stored = await this.#readStored(nodeUid, signal);
    const before = this.#stored.status;
    const status = this.#wanted();
    if (!isDeepStrictEqual(before, status)) {
      // `#stored` is reset before the write: if the answer is lost, the object must be read again.
      this.#stored = undefined;
      const owner = { apiVersion: 'v1', kind: 'Node', name: node, uid: nodeUid };
      await this.#kube.request({
        method: 'PATCH',
        path: this.#path,
        contentType: 'application/apply-patch+yaml',
        signal,
        query: { fieldManager: driver, force: 'true' },
        body: { apiVersion, kind, metadata: { name: node, ownerReferences: [owner] }, status },
      });
      this.#stored = { nodeUid, status };
      this.#nextAtMs = clock.nowMs() + collect.betweenMs;
      logger.debug({ ...status.devices }, 'NodeNetworkDevices written');
    }
    this.#logged.clear();
  }

  async #readStored(nodeUid: string, signal: AbortSignal) {
    try {
      const { metadata, status } = await this.#kube.request<{ metadata: ObjectMeta; status?: StoredView }>({
        method: 'GET',
        path: this.#path,
        signal,
      });
      const isOfNode = metadata.ownerReferences?.some(({ uid }) => uid === nodeUid) === true;
      return { nodeUid, status: isOfNode ? status : undefined };
    } catch (error) {
      if (!isKubeError(error, 'api-not-found')) throw error;
      return { nodeUid, status: undefined };
    }
  }

  get #path(): string {
    return `/apis/${apiVersion}/nodenetworkdevices/${this.#options.node}`;
  }

  /** Returns the wanted view. A condition whose status is unchanged keeps its transition time. */
  #wanted(): StoredView {
    const { read, now } = this.#options;
    const before = this.#stored?.status?.conditions ?? [];
    const view = read();
    const conditions = view.conditions.map((condition): Condition => {
      const known = before.find(({ type, status }) => type === condition.type && status === condition.status);
      const { lastTransitionTime = `${now().toISOString().slice(0, 19)}Z` } = known ?? {};
      return { ...condition, lastTransitionTime };
    });
    return { ...view, conditions };
  }

  #failed(error: unknown): void {
    const { logger, onError, random } = this.#options;
    onError?.(error);
    const code = isKubeError(error) ? error.code : 'other';
    const remedy = isKubeError(error) ? remedies[error.code] : undefined;
    const level = this.#logged.has(code) ? 'debug' : 'warn';
    this.#logged.add(code);
    const facts = { err: error, reason: explain(error), ...(remedy === undefined ? {} : { remedy }) };
    logger[level](facts, 'cannot write NodeNetworkDevices: the API does not show the current devices of this node');
    this.#refusals = code === 'api-forbidden' ? this.#refusals + 1 : 0;
    const mayPass = remedy === undefined || (this.#refusals > 0 && this.#refusals <= passingRefusals);
    const pauseMs = mayPass ? this.#retry.schedule() : pauses.refused.longestMs;
    this.#retry.after(pauseMs * (1 + random()));
  }
}
