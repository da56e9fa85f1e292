import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { gateProgramPath } from '../../../framework/metadata/gate/install.ts';
import { errnoCode } from '../../../lib/errors.ts';
import { resolvePath } from '../files.ts';
import { type Finding, ok, problem } from '../finding.ts';
import { mountOf, readMounts } from '../mounts.ts';

export interface GateCheck {
  procDir: string;
  /** The driver's own directory below the kubelet's `plugins`. */
  dataDir: string;
}

const check = 'start gate';
const noexecFix = 'mount it without noexec, or run the driver with --start-gate=file';

/** Whether the runtime can run the gate program that containers wait in, which the driver installs when it starts. */
export async function checkGate({ procDir, dataDir }: GateCheck): Promise<Finding[]> {
  const path = gateProgramPath(dataDir);
  try {
    // The kernel's answer covers the file system, too.
    await access(path, constants.X_OK);
    return [ok(check, `${path} can be run`)];
  } catch (error) {
    const code = errnoCode(error);
    if (code !== 'ENOENT') return [problem(check, `${path} cannot be run (${code})`, noexecFix)];
  }
  const mount = mountOf((await readMounts(procDir)) ?? [], await resolvePath(dataDir));
  if (!mount?.options.includes('noexec')) return [ok(check, `${path} will be installed`)];
  return [problem(check, `${path} could not be run: ${mount.path} is mounted noexec`, noexecFix)];
}
