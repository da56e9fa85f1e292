import type { DraPlugin } from '../kubeletplugin/index.ts';
import type { ClaimStatusWriter } from './claim-status-writer.ts';

/** A plugin whose claims tell nothing any more once they are unprepared. */
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
