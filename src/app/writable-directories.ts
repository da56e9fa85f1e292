import { accessSync, constants } from 'node:fs';
import { dirname } from 'node:path';
import { type ClaimRecords, defaultHostDirs, type LayoutName, readLayoutsInUse } from '../framework/metadata/index.ts';
import type { Settings } from '../instance/settings.ts';
import { errnoCode, NetdraError } from '../lib/errors.ts';

/** A directory that the driver writes to, and the flag that names it. */
export interface WritableDirectory {
  flag: string;
  path: string;
  /** Reason why the driver needs the directory, as a clause, if its flag does not show that. */
  purpose?: string;
}

/**
 * Checks that the driver can write to the directories that it needs, without changing anything. Without this check, the driver
 * would start and then fail each claim.
 * @throws NetdraError `directory-unwritable`
 */
export function checkWritableDirectories(directories: readonly WritableDirectory[]): void {
  for (const { flag, path, purpose } of directories) {
    const existing = nearestExisting(path);
    try {
      accessSync(existing, constants.W_OK | constants.X_OK);
    } catch (cause) {
      const code = errnoCode(cause) ?? 'unknown';
      const where = existing === path ? '' : `, which would be created in ${existing}`;
      const hint =
        code === 'EROFS'
          ? `mount it writable, or see ${flag}`
          : `run this as root, give the directory to root, or see ${flag}`;
      const why = purpose === undefined ? '' : `, ${purpose}`;
      throw new NetdraError('directory-unwritable', `cannot write to ${path}${where} (${code})${why}`, { path, hint });
    }
  }
}

/** Returns the directories that the driver needs with any layout. */
export function driverDirectories(settings: Settings): WritableDirectory[] {
  const { kubeletPluginsDir, kubeletRegistryDir, cdiDir, stateDir } = settings;
  return [
    { flag: '--kubelet-plugins-dir', path: `${kubeletPluginsDir}/${settings.driverName}` },
    { flag: '--kubelet-registry-dir', path: kubeletRegistryDir },
    { flag: '--cdi-dir', path: cdiDir },
    ...(stateDir === undefined ? [] : [{ flag: '--state-dir', path: stateDir }]),
  ];
}

/**
 * Returns the directories outside the driver's own that metadata layouts need: those of the layouts in the settings, and those
 * of prepared claims, which have files there even if their layout is no longer in the settings.
 * @param dataDir the driver's directory below the kubelet's `plugins`
 * @param records records of prepared claims
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
    return inUse.has(layout) ? [{ ...directory, purpose: `which prepared claims need for the layout ${layout}` }] : [];
  });
}

/** Returns the path itself, or its nearest existing ancestor. A file in the middle of the path counts as existing. */
function nearestExisting(path: string): string {
  for (let current = path; ; current = dirname(current)) {
    try {
      accessSync(current, constants.F_OK);
      return current;
    } catch (error) {
      if (errnoCode(error) !== 'ENOENT' || current === '/') return current;
    }
  }
}
