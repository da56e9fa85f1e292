import type { DeviceAttributes } from '../../framework/metadata/index.ts';
import { refusesLists } from '../../framework/resourceslice/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';

const numaNode = 'resource.kubernetes.io/numaNode';
/**
 * Time without list attributes after the API server has refused them, ms. Its feature gate may be enabled, so lists are tried
 * again.
 */
const retryMs = 3_600_000;

export interface ListAttributesOptions {
  clock: Clock;
  logger: Logger;
  /** Whether to offer the NUMA node as a list. Default: no. */
  listAttributes?: boolean;
  /** Returns a NUMA node and the other nodes of its socket. @throws Error if they cannot be read */
  nearNodes?: (node: number) => readonly number[];
}

/**
 * Decides whether the NUMA node is offered as a list, with the other nodes of its socket: only if the API server stores
 * lists.
 */
export class ListAttributes {
  readonly #options: ListAttributesOptions;
  readonly #lists = new Map<number, number[]>();
  #noListsUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: ListAttributesOptions) {
    this.#options = options;
  }

  offered(attributes: DeviceAttributes): DeviceAttributes {
    const { clock, listAttributes = false } = this.#options;
    const { [numaNode]: own } = attributes;
    if (!listAttributes || own?.int === undefined || clock.nowMs() < this.#noListsUntilMs) return attributes;
    return { ...attributes, [numaNode]: { ints: this.#near(Number(own.int)) } };
  }

  /** Offers single values for an hour if the API server refuses lists. @returns whether the error is such a refusal */
  learn(error: Error): boolean {
    const { clock, logger } = this.#options;
    if (!refusesLists(error)) return false;
    this.#noListsUntilMs = clock.nowMs() + retryMs;
    logger.warn(
      { attribute: numaNode },
      'the API server refused NUMA nodes as lists: offering single values, and trying lists again in an hour',
    );
    return true;
  }

  /** Returns the NUMA nodes of a node's socket. They are read once: they stay the same until the next boot. */
  #near(node: number): number[] {
    const { logger, nearNodes = (only) => [only] } = this.#options;
    let list = this.#lists.get(node);
    try {
      list ??= [...nearNodes(node)];
    } catch (err) {
      logger.warn({ err, node }, 'cannot read which NUMA nodes share a socket: devices name only their own NUMA node');
      list = [node];
    }
    this.#lists.set(node, list);
    return list;
  }
}
