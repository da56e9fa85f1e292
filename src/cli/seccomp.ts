import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import profile from '../../deploy/seccomp/netdra.json' with { type: 'json' };
import { NetdraError } from '../lib/errors.ts';
import { replaceFile } from '../lib/replace-file.ts';

/** The seccomp profile as text of a file. */
export const profileText = `${JSON.stringify(profile, null, 2)}\n`;

/**
 * Writes the seccomp profile atomically: a runtime that reads the file at the same time gets either the old or the new content.
 * @param path path of the file; its directories are created
 * @throws NetdraError `seccomp-not-installed`
 */
export function installProfile(path: string): void {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
    replaceFile(path, profileText, 0o644);
  } catch (cause) {
    const message = `cannot install the seccomp profile as ${path}`;
    const hint =
      'the directory must be writable: set kubeletPlugin.seccomp.directoryPath, or kubeletPlugin.seccomp.profile to RuntimeDefault';
    throw new NetdraError('seccomp-not-installed', message, { cause, path, hint });
  }
}
