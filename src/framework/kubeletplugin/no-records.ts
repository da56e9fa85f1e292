import { Batch } from '../../lib/batch.ts';
import type { MetadataFiles } from './shared-files.ts';

/** Replaces the metadata of a driver without any: claims have neither files nor records; only the driver's own last steps run. */
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
