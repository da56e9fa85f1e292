import { join } from 'node:path';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../../scripts/packages/debian-packages.ts';
import { isProgram } from '../../scripts/packages/host-programs.ts';
import { NetdraError } from '../../src/lib/errors.ts';

/** For tests of kind's arguments, on machines where kind cannot create a cluster. */
const kindPackage: DebianPackage = { name: 'kind', suite: 'forky' };

/** @throws PackageError */
export function fetchKind(cacheDir: string, log: (line: string) => void): void {
  fetchDebianPackages(cacheDir, [kindPackage], log);
}

/** @throws NetdraError `tool-missing` */
export function locateKind(cacheDir: string): string {
  const path = join(packageFolder(cacheDir, kindPackage), 'usr/bin/kind');
  if (isProgram(path)) return path;
  throw new NetdraError('tool-missing', `no ${path}`, { hint: 'run `node scripts/fetch-cluster-tools.ts` first' });
}
