import { NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import type { InventoryPolicy } from '../../node/inventory/index.ts';
import type { PolicyOrigin, PolicySource } from './policy-file.ts';

interface PolicyInForceOptions {
  logger: Logger;
  /** Returns whether a policy would withdraw all devices that are offered now. */
  withdrawsAll: (policy: InventoryPolicy) => boolean;
}

/** Policy that selects every VF. There is only one such object, since the inventory keeps its findings by policy object. */
const noPolicy: InventoryPolicy = {};

/**
 * The policy that decides on the devices of a node, and the reason why a newer policy does not. All other parts get the
 * policy here.
 */
export class PolicyInForce {
  readonly #source: PolicySource | undefined;
  readonly #options: PolicyInForceOptions;
  #policy = noPolicy;
  #origin: PolicyOrigin | undefined;
  #fault: NetdraError | undefined;

  constructor(source: PolicySource | undefined, options: PolicyInForceOptions) {
    this.#source = source;
    this.#options = options;
  }

  /** The policy in force; if there is none, a policy without rules. */
  get policy(): InventoryPolicy {
    return this.#policy;
  }

  /** Origin of the policy in force; `undefined` without one. */
  get origin(): PolicyOrigin | undefined {
    return this.#origin;
  }

  get fault(): NetdraError | undefined {
    return this.#fault;
  }

  /**
   * Reads the newest policy from the source.
   * @returns `isChanged`: a new policy is in force; `isReported`: the policy or its fault has changed; `failure`: the error
   * if no policy is in force, so that nothing can be offered
   */
  async follow(): Promise<{ isChanged: boolean; isReported: boolean; failure: unknown }> {
    const { logger } = this.#options;
    let isChanged = false;
    let fault: NetdraError | undefined;
    let failure: unknown;
    try {
      fault = await this.#source?.follow((policy, origin) => {
        this.#put(policy, origin);
        isChanged = true;
      });
    } catch (error) {
      failure = error;
      // A policy that could not be read yet was not rejected.
      if (error instanceof NetdraError && !error.retriable) fault = error;
    }
    const isNewFault = fault?.message !== this.#fault?.message;
    this.#fault = fault;
    if (isNewFault && fault !== undefined && failure === undefined) {
      logger.error({ err: fault }, 'inventory policy rejected; the last valid one stays in force');
    }
    return { isChanged, isReported: isChanged || isNewFault, failure };
  }

  #put(policy: InventoryPolicy | undefined, origin: PolicyOrigin = {}): void {
    const { logger, withdrawsAll } = this.#options;
    // Such a policy is most often a mistake. A policy with `pfs: []` withdraws all devices on purpose.
    if (policy !== undefined && origin.name !== undefined && withdrawsAll(policy)) {
      const message = 'the rules select no VF of this node, so that all devices would be withdrawn';
      const hint = 'correct select, vfs or vfDriver, or the nodeSelector; pfs: [] offers no VF on purpose';
      throw new NetdraError('policy-refused', `NetworkDevicePolicy ${origin.name}: ${message}`, { hint });
    }
    this.#policy = policy ?? noPolicy;
    this.#origin = policy && origin;
    logger.info({ ...origin }, policy === undefined ? 'no inventory policy' : 'inventory policy in force');
  }
}
