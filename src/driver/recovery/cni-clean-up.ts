import type { Clock } from '../../lib/clock.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import type { CachedAttachment, CniRunner } from '../../node/cni/index.ts';
import type { StoredClaims } from '../state/index.ts';
import { cniDeletionKey, cniInterfaceName } from '../vf/cni-attacher.ts';

/** Time limit for one attachment, ms: a plugin that hangs must not delay the others. */
const budgetMs = 30_000;

export interface CniCleanUpOptions {
  runner: Pick<CniRunner, 'cachedAttachments' | 'deleteCached' | 'releaseCached'>;
  store: StoredClaims;
  locks: Locks;
  clock: Clock;
  logger: Logger;
}

/**
 * Deletes CNI attachments of sandboxes that no longer have a prepared VF: the driver was killed between the DEL and the
 * removal of its cache entry, or a failed ADD could not be undone. The runner's cache has every attachment that was begun. If
 * a claim has the device by now, only the addresses are released.
 *
 * This replaces the verb GC of CNI 1.1, which deletes all attachments of a network that the caller does not list: networks of
 * NetworkAttachmentDefinitions have other users on the node, such as Multus.
 */
export class CniCleanUp implements AsyncDisposable {
  readonly #options: CniCleanUpOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();
  /** Attachments that had no VF at the last sweep. */
  #suspects = new Set<string>();

  constructor(options: CniCleanUpOptions) {
    this.#options = options;
  }

  /** Begins {@link run} in the background. */
  start(): void {
    this.#running = this.run().catch((error) => {
      this.#options.logger.warn({ err: error }, 'cannot clean up CNI attachments');
    });
  }

  /**
   * Deletes all unused attachments when the driver starts, while hooks are already served. @throws CniError
   * `cni-cache-unusable`
   */
  async run(): Promise<void> {
    for (const cached of await this.#unused()) {
      if (this.#stop.signal.aborted) return;
      if (!this.#isInUse(cached)) await this.#delete(cached);
    }
  }

  /**
   * Deletes attachments that were already unused at the last sweep. Must be called periodically. @throws CniError
   * `cni-cache-unusable`
   */
  async sweep(signal: AbortSignal): Promise<void> {
    const suspects = new Set<string>();
    for (const cached of await this.#unused()) {
      if (signal.aborted || this.#stop.signal.aborted) return;
      const { kind, attachment } = cached;
      const key = JSON.stringify([kind, attachment.network.name, attachment.containerId, attachment.ifName]);
      suspects.add(key);
      if (this.#suspects.has(key) && !this.#isInUse(cached)) await this.#delete(cached);
    }
    this.#suspects = suspects;
  }

  async #unused(): Promise<CachedAttachment[]> {
    const { runner, logger } = this.#options;
    // The cache is listed before the store is read: the store knows of an attachment before the cache does.
    const { attachments, problems } = await runner.cachedAttachments();
    for (const problem of problems) logger.warn({ err: problem }, 'cannot read a cached CNI attachment');
    return attachments.filter((cached) => !this.#isInUse(cached));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  #isHeld({ attachment: { deviceId } }: CachedAttachment): boolean {
    return this.#options.store
      .claims()
      .some(({ devices }) => devices.some(({ pciAddress }) => pciAddress === deviceId));
  }

  #isInUse({ attachment: { containerId, ifName } }: CachedAttachment): boolean {
    const devices = this.#options.store.claims().flatMap((claim) => claim.devices);
    return devices.some(
      (device) => device.attachment?.sandboxId === containerId && cniInterfaceName(device) === ifName,
    );
  }

  async #delete(cached: CachedAttachment): Promise<void> {
    const { runner, locks, clock, logger } = this.#options;
    const { network, containerId, ifName, deviceId } = cached.attachment;
    const fields = { network: network.name, sandbox: containerId, interface: ifName };
    using deadline = clock.deadline(budgetMs, this.#stop.signal);
    try {
      using _ = await locks.acquireAll(deviceId === undefined ? [] : [cniDeletionKey(deviceId)], deadline.signal);
      // The same sandbox may have been served again in the meantime, with an attachment of the same name.
      if (this.#isInUse(cached)) return;
      // If another claim has the VF now, a DEL would change the VF, or remove it from that claim's pod.
      if (this.#isHeld(cached)) await runner.releaseCached(cached, { signal: deadline.signal });
      else await runner.deleteCached(cached, { signal: deadline.signal });
      logger.info(fields, 'deleted the CNI attachment of a removed sandbox');
    } catch (error) {
      logger.warn({ ...fields, err: error }, 'cannot delete the CNI attachment of a removed sandbox');
    }
  }
}
