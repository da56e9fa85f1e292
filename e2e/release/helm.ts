import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isProgram } from '../../scripts/packages/host-programs.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { ensureGoPrograms, goProgramsFolder } from '../go/build.ts';

/** The versions of Helm that are tested with the chart, newest first; names of modules below `e2e/go`. */
export const helmVersions = ['helm-4', 'helm-3'] as const;
export type HelmVersion = (typeof helmVersions)[number];

export interface HelmOptions {
  /** Default: the newest. */
  version?: HelmVersion;
  /** Absent: commands that need a cluster fail. */
  kubeconfig?: string;
  timeoutMs?: number;
}

/** Builds Helm, before tests run without a network. @param versions default: all @throws GoBuildError */
export async function fetchHelm(
  cacheDir: string,
  log: (line: string) => void,
  versions: readonly HelmVersion[] = helmVersions,
): Promise<void> {
  for (const version of versions) await ensureGoPrograms(cacheDir, version, log);
}

/** @throws NetdraError `tool-missing` */
export function locateHelm(cacheDir: string, version: HelmVersion): string {
  const path = join(goProgramsFolder(cacheDir, version), 'helm');
  if (isProgram(path)) return path;
  throw new NetdraError('tool-missing', `no ${path}`, { hint: 'run `node scripts/fetch-release-tools.ts` first' });
}

/**
 * Runs Helm with separate settings and caches: the user's repositories, plugins and credentials are not used.
 * @returns its output
 * @throws CommandError with the last lines of its output; NetdraError `tool-missing`
 */
export function runHelm(cacheDir: string, args: readonly string[], options: HelmOptions = {}): string {
  const { version = 'helm-4', kubeconfig = '/dev/null', timeoutMs = 300_000 } = options;
  const home = mkdtempSync(join(tmpdir(), 'netdra-helm-'));
  try {
    const folders = Object.fromEntries(
      ['CACHE', 'CONFIG', 'DATA'].map((name) => [`HELM_${name}_HOME`, join(home, name)]),
    );
    const env = { ...process.env, ...folders, KUBECONFIG: kubeconfig };
    return run(locateHelm(cacheDir, version), args, { env, timeoutMs });
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

/** Values as arguments of Helm; all others keep the chart's defaults. */
export function valueArguments(values: Record<string, unknown>): string[] {
  return Object.entries(values).flatMap(([name, value]) => ['--set-json', `${name}=${JSON.stringify(value)}`]);
}
