import { createHash } from 'node:crypto';
import { type FollowedList, isKubeError, type KubeApi, type ObjectMeta } from '../../framework/kube/index.ts';
import { Background } from '../../lib/background.ts';
import { Backoff } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { printable } from '../../lib/printable.ts';
import { pauses } from '../../lib/waiting-times.ts';

const apiVersion = 'netdra.dev/v1alpha1';
const kind = 'NetworkDevicePolicy';
export const policiesPath = `/apis/${apiVersion}/networkdevicepolicies`;
/** Each write is sent to the watches of all nodes, so only the first ones are written: `maxItems` in the CustomResourceDefinition. */
export const mostRefusals = 10;
const longestMessage = 512;
/** A mistake is refused by many nodes at once. */
const collect = { leastMs: 2_000, spreadMs: 8_000 };

/** Why a node does not use a policy: an entry of its `status.refusedBy`. */
export interface Refusal {
  node: string;
  /** Of the policy. */
  generation: number;
  message: string;
}

interface WithRefusals {
  metadata: ObjectMeta & { generation?: number };
  status?: { refusedBy?: Refusal[] };
}

export interface PolicyRefusalsOptions {
  kube: Pick<KubeApi, 'request'>;
  /** The policies as the API server has them. */
  policies: Pick<FollowedList<WithRefusals>, 'objects' | 'update'>;
  driver: string;
  node: string;
  clock: Clock;
  logger: Logger;
  /** From 0 up to 1. */
  random: () => number;
  /** Receives each failure; all are already logged. */
  onError: (error: unknown) => void;
}

/**
 * Keeps the entry of a node in the status of policies: it is there while the node refuses the policy. A policy that all nodes accept
 * is never written to, and one that all refuse gets as many entries as fit.
 * Decision: docs/decisions/0044-a-policy-is-an-object.md
 */
export class PolicyRefusals implements AsyncDisposable {
  readonly #options: PolicyRefusalsOptions;
  readonly #background = new Background();
  readonly #retry: Backoff;
  readonly #manager: string;
  #wanted: ReadonlyMap<string, Refusal> = new Map();
  #isLogged = false;

  constructor(options: PolicyRefusalsOptions) {
    this.#options = options;
    this.#retry = new Backoff(options.clock, pauses.nodeView, () => void this.#run());
    // A field manager has at most 128 characters, the name of a node 253.
    this.#manager = `${options.driver}-${createHash('sha256').update(options.node).digest('hex').slice(0, 12)}`;
  }

  /** @param refused why, by the name of the policy; others are accepted, or not for this node */
  want(refused: ReadonlyMap<string, { generation: number; message: string }>): void {
    const { node, random } = this.#options;
    this.#wanted = new Map(
      [...refused].map(([name, { generation, message }]) => {
        return [name, { node, generation, message: printable(message, longestMessage) }];
      }),
    );
    const isBusy = this.#background.signal.aborted || this.#background.isRunning('') || this.#retry.isScheduled;
    if (isBusy || this.#differences().length === 0) return;
    this.#retry.after(collect.leastMs + collect.spreadMs * random());
  }

  async [Symbol.asyncDispose]() {
    this.#retry[Symbol.dispose]();
    await this.#background[Symbol.asyncDispose]();
  }

  #differences(): { name: string; wanted: Refusal | undefined }[] {
    const { policies, node } = this.#options;
    return [...(policies.objects ?? [])].flatMap(([name, { status }]) => {
      const { refusedBy = [] } = status ?? {};
      const stored = refusedBy.find((each) => each.node === node);
      const wanted = this.#wanted.get(name);
      const isSame = stored?.generation === wanted?.generation && stored?.message === wanted?.message;
      const isFull = stored === undefined && refusedBy.length >= mostRefusals;
      return isSame || isFull ? [] : [{ name, wanted }];
    });
  }

  async #run(): Promise<void> {
    await this.#background.run('', async (signal) => {
      try {
        for (const each of this.#differences()) await this.#write(each, signal);
        this.#isLogged = false;
        this.#retry.reset();
      } catch (error) {
        signal.throwIfAborted();
        const { logger, onError, random } = this.#options;
        onError(error);
        const facts = { err: error, reason: explain(error) };
        logger[this.#isLogged ? 'debug' : 'warn'](facts, 'the status of a NetworkDevicePolicy is not written');
        this.#isLogged = true;
        this.#retry.after(this.#retry.schedule() * (1 + random()));
      }
    });
  }

  async #write({ name, wanted }: { name: string; wanted: Refusal | undefined }, signal: AbortSignal): Promise<void> {
    const { kube, policies } = this.#options;
    const status = wanted === undefined ? {} : { status: { refusedBy: [wanted] } };
    try {
      const answer = await kube.request<WithRefusals>({
        ...{ method: 'PATCH', path: `${policiesPath}/${name}/status`, contentType: 'application/apply-patch+yaml' },
        query: { fieldManager: this.#manager, force: 'true' },
        ...{ body: { apiVersion, kind, metadata: { name }, ...status }, signal },
      });
      policies.update(answer);
    } catch (error) {
      // It was deleted, or other nodes have taken the last entries: the watch says so, too.
      if (!isKubeError(error, 'api-not-found', 'api-invalid')) throw error;
    }
  }
}
