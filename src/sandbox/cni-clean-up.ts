import type { Clock } from '../clock.ts';
import type { CachedAttachment, CniRunner } from '../cni/index.ts';
import type { Store } from '../driver/index.ts';
import type { Logger } from '../logger.ts';
import { cniInterfaceName } from './cni-attacher.ts';

/** For one attachment: a plugin that hangs must not keep the others. */
const budgetMs = 30_000;

export interface CniCleanUpOptions {
  runner: Pick<CniRunner, 'cachedAttachments' | 'deleteCached'>;
  store: Pick<Store, 'claims'>;
  clock: Clock;
  logger: Logger;
}

/**
 * Takes back what CNI plugins gave to sandboxes that no prepared VF is in any more: the driver was ended between the DEL
 * and its last word, or a failed ADD could not be undone. The runner's cache knows every attachment that was begun.
 *
 * This stands in for the verb GC of CNI 1.1, which is not used: it takes away everything in a network that its caller
 * does not name, and a network of a NetworkAttachmentDefinition has other users on the node, such as Multus.
 */
export class CniCleanUp implements AsyncDisposable {
  readonly #options: CniCleanUpOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: CniCleanUpOptions) {
    this.#options = options;
  }

  /** Runs once, in the background. */
  start(): void {
    this.#running = this.run().catch((error) => {
      this.#options.logger.warn({ err: error }, 'CNI attachments cannot be cleaned up');
    });
  }

  /** @throws CniError `cni-cache-unusable` */
  async run(): Promise<void> {
    const { runner, logger } = this.#options;
    // Listed before the store is asked: the store knows of an attachment before the cache does.
    const { attachments, problems } = await runner.cachedAttachments();
    for (const problem of problems) logger.warn({ err: problem }, 'cached CNI attachment cannot be read');
    for (const cached of attachments) {
      if (this.#stop.signal.aborted) return;
      if (!this.#isInUse(cached)) await this.#delete(cached);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  #isInUse({ attachment: { containerId, ifName } }: CachedAttachment): boolean {
    const devices = this.#options.store.claims().flatMap((claim) => claim.devices);
    return devices.some(
      (device) => device.attachment?.sandboxId === containerId && cniInterfaceName(device) === ifName,
    );
  }

  async #delete(cached: CachedAttachment): Promise<void> {
    const { runner, clock, logger } = this.#options;
    const { network, containerId, ifName } = cached.attachment;
    const fields = { network: network.name, sandbox: containerId, interface: ifName };
    using deadline = clock.deadline(budgetMs, this.#stop.signal);
    try {
      await runner.deleteCached(cached, { signal: deadline.signal });
      logger.info(fields, 'CNI attachment of a sandbox that is gone deleted');
    } catch (error) {
      logger.warn({ ...fields, err: error }, 'CNI attachment of a sandbox that is gone cannot be deleted');
    }
  }
}
