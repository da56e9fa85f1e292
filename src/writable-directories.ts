import { accessSync, constants } from 'node:fs';
import { dirname } from 'node:path';
import { errnoCode, NetdraError } from './errors.ts';
import type { Settings } from './settings.ts';

/** A directory that the driver writes to, and the flag that names it. */
interface Directory {
  flag: string;
  path: string;
}

/**
 * Checks that the driver can write to all directories it needs, without changing anything. Otherwise the driver would
 * start and then fail claim by claim.
 * @throws NetdraError `directory-unwritable`
 */
export function checkWritableDirectories(settings: Settings): void {
  for (const { flag, path } of directoriesOf(settings)) {
    const existing = nearestExisting(path);
    try {
      accessSync(existing, constants.W_OK | constants.X_OK);
    } catch (cause) {
      const code = errnoCode(cause) ?? 'unknown';
      const where = existing === path ? '' : `, which would be made in ${existing}`;
      const hint =
        code === 'EROFS'
          ? `mount it writable, or see ${flag}`
          : `run this as root, give the directory to root, or see ${flag}`;
      throw new NetdraError('directory-unwritable', `cannot write to ${path}${where} (${code})`, { path, hint });
    }
  }
}

function directoriesOf(settings: Settings): Directory[] {
  const { kubeletPluginsDir, kubeletRegistryDir, cdiDir, stateDir, metadataLayouts } = settings;
  const { attributesDir, downwardApiDir } = settings;
  const directories: (Directory | undefined)[] = [
    { flag: '--kubelet-plugins-dir', path: `${kubeletPluginsDir}/${settings.driverName}` },
    { flag: '--kubelet-registry-dir', path: kubeletRegistryDir },
    { flag: '--cdi-dir', path: cdiDir },
    stateDir === undefined ? undefined : { flag: '--state-dir', path: stateDir },
    attributesDir !== undefined && metadataLayouts.includes('attributes-json')
      ? { flag: '--attributes-dir', path: attributesDir }
      : undefined,
    downwardApiDir !== undefined && metadataLayouts.includes('downward-api')
      ? { flag: '--downward-api-dir', path: downwardApiDir }
      : undefined,
  ];
  return directories.filter((directory) => directory !== undefined);
}

/** The path itself, or its nearest existing ancestor. A file in the way counts as existing. */
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
