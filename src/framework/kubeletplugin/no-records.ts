import { Batch } from '../../lib/batch.ts';
import type { MetadataFiles } from './shared-files.ts';

/**
 * Stands in for the metadata of a driver without metadata: claims have neither files nor records. Runs only the driver's last
 * steps, `commit` and `discard`.
 */
export const noRecords: Pick<MetadataFiles, 'prepareAll' | 'unprepareAll'> = {
  async prepareAll(claims) {
    const batch = new Batch(claims.map(({ record, commit }) => ({ uid: record.claim.uid, commit })));
    batch.run(({ commit }) => commit?.());
    return new Map(claims.map(({ record: { claim } }) => [claim.uid, batch.errors.get(claim.uid) ?? new Map()]));
  },
  async unprepareAll(claims) {
    const batch = new Batch(claims.map(({ claim, discard }) => ({ uid: claim.uid, discard })));
    batch.run(({ discard }) => discard?.());
    return batch.errors;
  },
};
