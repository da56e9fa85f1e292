import { join } from 'node:path';
import { readText } from '../files.ts';
import { type Finding, ok, problem, warning } from '../finding.ts';

/** Since then the kernel reports the bus address of a link, by which a VF is found in a pod. */
const needed = { major: 5, minor: 14 };

export interface KernelCheck {
  procDir: string;
  /** Simulated VFs are found in another way. */
  simulated: boolean;
}

export async function checkKernel({ procDir, simulated }: KernelCheck): Promise<Finding[]> {
  const check = 'kernel';
  const release = await readText(join(procDir, 'sys/kernel/osrelease'));
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(release ?? '') ?? [];
  if (major === undefined)
    return [warning(check, `its version cannot be read in ${procDir}`, 'run this where /proc is')];
  const isEnough = Number(major) > needed.major || (Number(major) === needed.major && Number(minor) >= needed.minor);
  if (isEnough) return [ok(check, `Linux ${release}`)];
  const level = simulated ? warning : problem;
  return [level(check, `Linux ${release} does not tell which VF an interface is`, 'use Linux 5.14 or newer')];
}
