import { type ClaimRecords, defaultHostDirs, type LayoutName, readLayoutsInUse } from '../framework/metadata/index.ts';
import type { Settings } from './settings.ts';
import type { WritableDirectory } from './writable-directories.ts';

/**
 * Directories outside the driver's own that metadata layouts need: those in the settings, and those of prepared claims.
 * Such a claim has files there although its layout is no longer in the settings.
 * @param dataDir the driver's directory below the kubelet's `plugins`
 * @param records of prepared claims
 * @throws MetadataError `metadata-io`; StateError `store-unusable`
 */
export async function layoutDirectories(
  { metadataLayouts, attributesDir, downwardApiDir }: Settings,
  dataDir: string,
  records: ClaimRecords,
): Promise<WritableDirectory[]> {
  const all: [LayoutName, WritableDirectory][] = [
    ['attributes-json', { flag: '--attributes-dir', path: attributesDir ?? defaultHostDirs.attributesDir }],
    ['downward-api', { flag: '--downward-api-dir', path: downwardApiDir ?? defaultHostDirs.downwardApiDir }],
  ];
  const inUse = await readLayoutsInUse(records, dataDir);
  return all.flatMap(([layout, directory]) => {
    if (metadataLayouts.includes(layout)) return [directory];
    return inUse.has(layout) ? [{ ...directory, purpose: `prepared claims have the layout ${layout}` }] : [];
  });
}
