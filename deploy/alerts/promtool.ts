import { join } from 'node:path';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../../scripts/packages/debian-packages.ts';
import { findFolderWith, isProgram, pathFolders } from '../../scripts/packages/host-programs.ts';
import { NetdraError } from '../../src/lib/errors.ts';

const prometheus: DebianPackage = { name: 'prometheus', suite: 'bookworm' };

function promtoolOfMachine(env: NodeJS.ProcessEnv): string | undefined {
  return findFolderWith(pathFolders(env.PATH), ['promtool']);
}

/** Makes sure of promtool, before tests run where there is no network. @throws PackageError */
export function fetchPromtool(cacheDir: string, env: NodeJS.ProcessEnv, log: (line: string) => void): void {
  if (promtoolOfMachine(env) === undefined) fetchDebianPackages(cacheDir, [prometheus], log);
}

/** Of the machine, or of Debian's package. @throws NetdraError `tool-missing` */
export function locatePromtool(cacheDir: string, env: NodeJS.ProcessEnv): string {
  const path = join(promtoolOfMachine(env) ?? join(packageFolder(cacheDir, prometheus), 'usr/bin'), 'promtool');
  if (isProgram(path)) return path;
  throw new NetdraError('tool-missing', `no ${path}`, { hint: 'run `node scripts/fetch-release-tools.ts` first' });
}
