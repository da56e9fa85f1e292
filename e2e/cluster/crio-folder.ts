import { join } from 'node:path';
import { isProgram } from '../../scripts/packages/host-programs.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import type { CrioPrograms } from './node/crio.ts';

/** CRI-O's own default comes first. */
const ociRuntimes = ['crun', 'runc'];

/** A run on CRI-O with programs missing. */
export class CrioError extends NetdraError<'no-crio'> {}

/**
 * Finds the programs of a CRI-O, which the suite cannot build: it is in no package registry.
 * @param dir the folder given with `--crio`; `undefined`: none
 * @throws CrioError
 */
export function locateCrio(dir: string | undefined): CrioPrograms {
  const hint = 'name a folder with crio, conmon, pinns, and crun or runc: --crio DIR';
  if (dir === undefined) throw new CrioError('no-crio', 'CRI-O is not run: no --crio', { hint });
  const has = (name: string) => isProgram(join(dir, name));
  const ociRuntime = ociRuntimes.find(has);
  const missing = ['crio', 'conmon', 'pinns'].filter((name) => !has(name));
  if (ociRuntime === undefined) missing.push(ociRuntimes.join(' or '));
  if (ociRuntime === undefined || missing.length > 0) {
    throw new CrioError('no-crio', `CRI-O is not run: ${dir} has no ${missing.join(', no ')}`, { hint });
  }
  const path = (name: string) => join(dir, name);
  return {
    kind: 'crio',
    crio: path('crio'),
    conmon: path('conmon'),
    pinns: path('pinns'),
    ociRuntime: path(ociRuntime),
  };
}

/** `CRI-O 1.37.0 with crun 1.8.1`. @throws CommandError */
export function describeCrio({ crio, ociRuntime }: CrioPrograms): string {
  const version = (program: string) => /version:? +(\S+)/i.exec(run(program, ['--version']))?.[1] ?? 'of no version';
  return `CRI-O ${version(crio)} with ${ociRuntime.slice(ociRuntime.lastIndexOf('/') + 1)} ${version(ociRuntime)}`;
}
