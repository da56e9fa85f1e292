import type { Attachment, Store, StoredClaim } from '../driver/index.ts';
import type { KeyedMutex } from '../keyed-mutex.ts';
import type { Logger } from '../logger.ts';
import type { KnownSandboxes } from './known-sandboxes.ts';
import type { LeaveSandbox } from './leave-sandbox.ts';
import { isNetnsGone } from './pod-netns.ts';

export interface StrayAttachmentsOptions {
  store: Store;
  known: KnownSandboxes;
  leave: LeaveSandbox;
  claimMutex: KeyedMutex;
  logger: Logger;
}

/**
 * Brings VFs back from sandboxes whose end nobody told us: the driver was away, or containerd was restarted. Where the
 * network namespace is still there, only at the second look: some runtimes leave sandboxes that they are just making out
 * of their list. Such a pod has no container yet, so all that it loses is time.
 */
export class StrayAttachments {
  readonly #options: StrayAttachmentsOptions;
  /** Sandboxes that were missing at the last look. */
  #suspects = new Set<string>();

  constructor(options: StrayAttachmentsOptions) {
    this.#options = options;
  }

  /** Does nothing while the runtime's list is not known. Whatever fails is logged, and tried again at the next sweep. */
  async sweep(signal: AbortSignal): Promise<void> {
    const { store, known } = this.#options;
    if (!known.isFresh) return;
    const suspects = new Set<string>();
    for (const claim of store.claims()) {
      for (const { sandboxId, netnsPath } of attachmentsOf(claim)) {
        // One that was stopped stays in the list until it is removed.
        const isGone = isNetnsGone(netnsPath);
        if (signal.aborted || (known.has(sandboxId) && !isGone)) continue;
        suspects.add(sandboxId);
        if (isGone || this.#suspects.has(sandboxId)) await this.#bringBack(claim, sandboxId, netnsPath);
      }
    }
    this.#suspects = suspects;
  }

  async #bringBack({ identity }: StoredClaim, sandboxId: string, netnsPath: string): Promise<void> {
    const { known, leave, claimMutex, logger } = this.#options;
    const log = { claim: `${identity.namespace}/${identity.name}`, sandbox: sandboxId };
    try {
      await claimMutex.run(identity.uid, async () => {
        // Its hook may have come while we waited.
        if (known.has(sandboxId) && !isNetnsGone(netnsPath)) return;
        const count = await leave(identity, sandboxId);
        if (count > 0) logger.warn({ ...log, devices: count }, 'VFs brought back from a sandbox that is gone');
      });
    } catch (error) {
      logger.warn({ ...log, err: error }, 'VFs of a sandbox that is gone cannot be brought back');
    }
  }
}

/** One for each sandbox: it is one, save for what a crash has left. */
function attachmentsOf({ devices }: StoredClaim): Attachment[] {
  const attachments = devices.flatMap(({ attachment }) => (attachment === undefined ? [] : [attachment]));
  return [...new Map(attachments.map((attachment) => [attachment.sandboxId, attachment])).values()];
}
