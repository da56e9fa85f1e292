import { join } from 'node:path';
import { readText } from './files.ts';

export interface Mount {
  /** Mount point. */
  path: string;
  /** Mount options such as `rw`, `noexec`. */
  options: string[];
  /** Propagation flags, such as `shared:12`, `master:3`; empty for a private mount. */
  propagation: string[];
}

/**
 * Returns all mounts of this process, in the order of mounting; `undefined` if they cannot be read.
 * Source: proc_pid_mountinfo(5).
 */
export async function readMounts(procDir: string): Promise<Mount[] | undefined> {
  const text = await readText(join(procDir, 'self/mountinfo'));
  return text?.split('\n').map((line) => {
    const fields = line.split(' ');
    const [, , , , path = '', options = ''] = fields;
    return { path, options: options.split(','), propagation: fields.slice(6, fields.indexOf('-')) };
  });
}

/** Returns the mount to which a path belongs: the last mount at or above the path, which covers earlier ones. */
export function mountOf(mounts: readonly Mount[], path: string): Mount | undefined {
  return mounts.findLast(
    (mount) => path === mount.path || path.startsWith(mount.path === '/' ? '/' : `${mount.path}/`),
  );
}
