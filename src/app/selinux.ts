import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import koffi from 'koffi';
import { gateProgramPath } from '../framework/metadata/gate/index.ts';
import { metadataDirName } from '../framework/metadata/layouts/layout-v1.ts';
import { explain, NetdraError } from '../lib/errors.ts';
import type { Logger } from '../lib/logger.ts';
import { errnoName } from '../node/netlink/netns.ts';

/**
 * Label of files that every container may read, whatever the container's categories. Source: container-selinux, `container.te`:
 * `container_file_t`; level `s0` without categories.
 */
export const containerLabel = 'system_u:object_r:container_file_t:s0';
/** File that exists while an SELinux policy is loaded. */
const enforcePath = '/sys/fs/selinux/enforce';

/**
 * Labels the directories whose files are mounted into containers. Call it before files are created in them. A failure is only
 * logged: the driver can still serve pods that SELinux does not confine.
 * @param dataDir the driver's directory below the kubelet's `plugins`
 * @param layoutDirs directories of layouts outside `dataDir`
 */
export function labelDirectories(dataDir: string, layoutDirs: readonly string[], logger: Logger): void {
  try {
    labelForContainers([join(dataDir, metadataDirName), dirname(gateProgramPath(dataDir)), ...layoutDirs]);
  } catch (error) {
    logger.warn({ err: error }, explain(error));
  }
}

/**
 * Gives directories and their contents the label of files for containers. Files created later inherit the type from the
 * directory and the level from the driver's process, whose level must therefore be exactly `s0`. Creates missing directories.
 * Does nothing if SELinux is off.
 * @throws NetdraError `selinux-label` with the first file that cannot be labelled
 */
export function labelForContainers(dirs: readonly string[], { enforce = enforcePath } = {}): void {
  if (!existsSync(enforce)) return;
  // Looked up once, at start: each koffi lookup costs memory for good.
  const lsetxattr = koffi
    .load(null)
    .func('int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)');
  // With its terminating NUL, as libselinux writes it.
  const value = Buffer.from(`${containerLabel}\0`);
  const label = (path: string) => {
    if (lsetxattr(path, 'security.selinux', value, value.length, 0) !== 0) throw refused(path, koffi.errno());
  };
  for (const dir of dirs) {
    mkdirSync(dir, { recursive: true });
    label(dir);
    for (const entry of readdirSync(dir, { recursive: true, encoding: 'utf8' })) label(join(dir, entry));
  }
}

function refused(path: string, errno: number): NetdraError {
  const message = `cannot give ${path} the SELinux label ${containerLabel} (${errnoName(errno)})`;
  return new NetdraError('selinux-label', message, {
    path,
    hint: 'SELinux may deny containers their metadata files: set kubeletPlugin.seLinuxOptions to type spc_t and level s0',
  });
}
