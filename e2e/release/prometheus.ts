import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../../scripts/packages/debian-packages.ts';
import { findFolderWith, isProgram, pathFolders } from '../../scripts/packages/host-programs.ts';
import { NetdraError } from '../../src/lib/errors.ts';

const prometheus: DebianPackage = { name: 'prometheus', suite: 'bookworm' };
const programs = ['prometheus', 'promtool'] as const;

function folderOfMachine(env: NodeJS.ProcessEnv): string | undefined {
  return findFolderWith(pathFolders(env.PATH), [...programs]);
}

/** Makes sure of Prometheus and promtool, before tests run where there is no network. @throws PackageError */
export function fetchPrometheus(cacheDir: string, env: NodeJS.ProcessEnv, log: (line: string) => void): void {
  if (folderOfMachine(env) === undefined) fetchDebianPackages(cacheDir, [prometheus], log);
}

/** Of the machine, or of Debian's package. @throws NetdraError `tool-missing` */
export function locatePrometheus(program: (typeof programs)[number], cacheDir: string, env: NodeJS.ProcessEnv): string {
  const path = join(folderOfMachine(env) ?? join(packageFolder(cacheDir, prometheus), 'usr/bin'), program);
  if (isProgram(path)) return path;
  throw new NetdraError('tool-missing', `no ${path}`, { hint: 'run `node scripts/fetch-release-tools.ts` first' });
}

/** What the panels of the dashboard ask Prometheus, for all nodes. */
export function dashboardExpressions(): string[] {
  const path = fileURLToPath(new URL('../../deploy/helm/netdra/dashboard.json', import.meta.url));
  const { panels } = JSON.parse(readFileSync(path, 'utf8')) as { panels: { targets?: { expr: string }[] }[] };
  const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  return expressions.map((expr) => expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*'));
}
