import type { ResourceClaim } from '../kube/index.ts';
import { hasSucceeded } from '../kubeletplugin/driver-answers.ts';
import type { DraPlugin } from '../kubeletplugin/index.ts';
import type { ClaimStatusWriter } from './claim-status-writer.ts';

/**
 * Wraps a plugin. After prepare, hands the claim, which was just read, to the writer, so that the writer need not read its
 * status. After unprepare, has the writer remove the claim's status entries.
 */
export function withClaimStatus(plugin: DraPlugin, writer: Pick<ClaimStatusWriter, 'note' | 'remove'>): DraPlugin {
  return {
    async prepareResourceClaims(claims, context) {
      const results = await plugin.prepareResourceClaims(claims, context);
      for (const { identity, object } of claims) {
        // At run time these are complete claims; their type omits fields that drivers do not need.
        if (hasSucceeded(results, identity)) writer.note(identity, object as ResourceClaim);
      }
      return results;
    },
    async unprepareResourceClaims(claims, context) {
      const results = await plugin.unprepareResourceClaims(claims, context);
      for (const claim of claims) {
        if (hasSucceeded(results, claim)) writer.remove(claim);
      }
      return results;
    },
  };
}
