import { NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import type { InventoryPolicy } from '../../node/inventory/index.ts';
import type { PolicyOrigin, PolicySource } from './policy-file.ts';

interface PolicyInForceOptions {
  logger: Logger;
  /** Whether devices are offered now but the policy would offer none. */
  withdrawsAll: (policy: InventoryPolicy) => boolean;
}

/** Selects every VF. One object, since what was learned under a policy is kept by the policy. */
const noPolicy: InventoryPolicy = {};

/** The policy that decides on the devices of a node, which all others ask for here, and why a newer one does not. */
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

  /** Without rules while none is in force. */
  get policy(): InventoryPolicy {
    return this.#policy;
  }

  /** `undefined` while no policy is in force. */
  get origin(): PolicyOrigin | undefined {
    return this.#origin;
  }

  get fault(): NetdraError | undefined {
    return this.#fault;
  }

  /**
   * Asks the source for a newer policy.
   * @returns `isChanged`: there is one; `isReported`: what is shown of it is other than before; `failure`: none is in force, and so
   * nothing can be offered
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
      // One that is not read yet is not refused.
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
    // Most often a mistake. To offer nothing on purpose, there is a list without rules.
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
