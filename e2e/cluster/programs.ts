import { join } from 'node:path';
import { NetdraError } from '../../src/errors.ts';
import { ensureGoPrograms, pinnedVersion } from '../go/build.ts';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../node/packages/debian-packages.ts';
import type { ContainerdSeries } from '../node/tools.ts';

/** The versions of Kubernetes that `e2e/go` pins, newest first. */
export const kubernetesVersions = ['1.36', '1.35', '1.34'] as const;
export type KubernetesVersion = (typeof kubernetesVersions)[number];

/** Container runtimes, and where their programs come from: a Go module, Debian (e2e/node), or a folder of the user's. */
const runtimeSources = {
  'containerd-2.1': { series: '2.1' },
  'containerd-2.4': { series: '2.1', module: 'containerd-2.4' },
  'containerd-2.3': { series: '2.1', module: 'containerd-2.3' },
  'containerd-2.2': { series: '2.1', module: 'containerd-2.2' },
  'containerd-1.7': { series: '1.7' },
} as const satisfies Record<string, { series: ContainerdSeries; module?: string }>;
export type RuntimeName = keyof typeof runtimeSources;
export const runtimeNames = Object.keys(runtimeSources) as RuntimeName[];

/** What a run of the suite is made of. Paths are absolute. */
export interface ClusterPrograms {
  kubernetesVersion: KubernetesVersion;
  /** Folder with the programs of Kubernetes. */
  kubernetes: string;
  /** The program `etcd`. */
  etcd: string;
  runtime: { name: RuntimeName; series: ContainerdSeries; dir?: string };
}

export interface ProgramChoice {
  kubernetes: KubernetesVersion;
  runtime: RuntimeName;
  /** A folder with programs of Kubernetes, in place of those built here. */
  kubernetesDir?: string;
}

const etcd: DebianPackage = { name: 'etcd-server', suite: 'forky' };

/**
 * Makes sure of the programs of a cluster: builds and fetches what the cache does not have. Needs the network then.
 * @throws GoBuildError, PackageError
 */
export async function fetchClusterPrograms(
  cacheDir: string,
  choice: ProgramChoice,
  log: (line: string) => void,
): Promise<ClusterPrograms> {
  fetchDebianPackages(cacheDir, [etcd], log);
  const build = (module: string) => ensureGoPrograms(cacheDir, module, log);
  const kubernetes = choice.kubernetesDir ?? (await build(`kubernetes-${choice.kubernetes}`));
  const source: { series: ContainerdSeries; module?: string } = runtimeSources[choice.runtime];
  const runtime = { name: choice.runtime, series: source.series };
  const runtimeDir = source.module === undefined ? {} : { dir: await build(source.module) };
  return {
    kubernetesVersion: choice.kubernetes,
    kubernetes,
    etcd: join(packageFolder(cacheDir, etcd), 'usr/bin/etcd'),
    runtime: { ...runtime, ...runtimeDir },
  };
}

/** The names of a pair for people: `Kubernetes 1.36.3, containerd-2.1`. */
export function describePair({ kubernetes, runtime }: ProgramChoice): string {
  return `Kubernetes ${pinnedVersion(`kubernetes-${kubernetes}`, 'k8s.io/kubernetes')}, ${runtime}`;
}

/** What `npm test` runs: the newest and the oldest Kubernetes, and two versions of containerd. */
export const testedPairs: readonly [ProgramChoice, ...ProgramChoice[]] = [
  { kubernetes: '1.36', runtime: 'containerd-2.1' },
  { kubernetes: '1.34', runtime: 'containerd-2.4' },
];

/** How the programs get to the process of the tests. */
export const programsVariable = 'NETDRA_CLUSTER_PROGRAMS';

export function toEnv(programs: ClusterPrograms): Record<string, string> {
  return { [programsVariable]: JSON.stringify(programs) };
}

/** @throws NetdraError `programs-missing` */
export function readPrograms(env: NodeJS.ProcessEnv): ClusterPrograms {
  const text = env[programsVariable];
  if (text !== undefined) return JSON.parse(text) as ClusterPrograms;
  throw new NetdraError('programs-missing', `no programs are named in ${programsVariable}`, {
    hint: 'npm run e2e:cluster fetches them and starts the tests',
  });
}
