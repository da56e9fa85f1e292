import type { DraPlugin } from '../kubeletplugin/index.ts';
import type { ClaimStatusWriter } from './claim-status-writer.ts';

/** Wraps a plugin so that the status entries of unprepared claims are removed. */
export function withStatusRemoval(plugin: DraPlugin, writer: Pick<ClaimStatusWriter, 'remove'>): DraPlugin {
  return {
    prepareResourceClaims: (claims, context) => plugin.prepareResourceClaims(claims, context),
    async unprepareResourceClaims(claims, context) {
      const results = await plugin.unprepareResourceClaims(claims, context);
      for (const claim of claims) {
        if (results.has(claim.uid) && results.get(claim.uid) === undefined) writer.remove(claim);
      }
      return results;
    },
  };
}
