import { join } from 'node:path';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../../scripts/packages/debian-packages.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { ensureGoPrograms, pinnedVersion } from '../go/build.ts';
import type { ContainerdSeries } from '../node/tools.ts';
import { describeCrio, locateCrio } from './crio-folder.ts';
import type { RuntimePrograms } from './node/real-node.ts';

/** The versions of Kubernetes pinned in `e2e/go`, newest first. */
export const kubernetesVersions = ['1.37', '1.36', '1.35', '1.34'] as const;
export type KubernetesVersion = (typeof kubernetesVersions)[number];

export function isSince(version: KubernetesVersion, first: KubernetesVersion): boolean {
  return kubernetesVersions.indexOf(version) <= kubernetesVersions.indexOf(first);
}

/** The feature gates that concern the driver, all of them on: only the first one is off by default in 1.36 and 1.37. */
export const alphaGates = {
  DRAListTypeAttributes: true,
  ResourceHealthStatusMessage: true,
  DRAResourceClaimGranularStatusAuthorization: true,
};

/** Source of the programs of a containerd: a Go module, or Debian (e2e/node). */
const containerdSources = {
  'containerd-2.1': { series: '2.1' },
  'containerd-2.4': { series: '2.1', module: 'containerd-2.4' },
  'containerd-2.3': { series: '2.1', module: 'containerd-2.3' },
  'containerd-2.2': { series: '2.1', module: 'containerd-2.2' },
  'containerd-1.7': { series: '1.7' },
} as const satisfies Record<string, ContainerdSource>;
type ContainerdSource = { series: ContainerdSeries; module?: string };
type ContainerdName = keyof typeof containerdSources;

/** The programs of CRI-O are in a folder given by the user. */
export const runtimeNames = [...(Object.keys(containerdSources) as ContainerdName[]), 'crio'] as const;
export type RuntimeName = (typeof runtimeNames)[number];

/** The parts of a run of the suite. Paths are absolute. */
export interface ClusterPrograms {
  kubernetesVersion: KubernetesVersion;
  /** Folder with the programs of Kubernetes. */
  kubernetes: string;
  /** The program `etcd`. */
  etcd: string;
  runtime: RuntimePrograms;
  /** Whether {@link alphaGates} are switched on. */
  alpha: boolean;
  /** Display name of the runtime. */
  runtimeLabel: string;
  /** The NRI plugin in Go against which the driver is measured: e2e/go/nri-plugin. */
  nriPlugin: string;
}

export interface ProgramChoice {
  kubernetes: KubernetesVersion;
  runtime: RuntimeName;
  /** With {@link alphaGates}. */
  alpha?: true;
  /** A folder with programs of Kubernetes, in place of those built here. */
  kubernetesDir?: string;
  /** The folder with the programs of `crio`. */
  crioDir?: string;
}

const etcd: DebianPackage = { name: 'etcd-server', suite: 'forky' };

/**
 * Provides the programs of a cluster: builds and fetches what the cache lacks, which needs the network.
 * @throws CrioError, GoBuildError, PackageError
 */
export async function fetchClusterPrograms(
  cacheDir: string,
  choice: ProgramChoice,
  log: (line: string) => void,
): Promise<ClusterPrograms> {
  // Checked before anything is built: the programs may be missing.
  const runtimeLabel = describeRuntime(choice);
  if (choice.alpha && !isSince(choice.kubernetes, '1.36')) {
    throw new NetdraError(
      'gates-unknown',
      `Kubernetes ${choice.kubernetes} does not know ${Object.keys(alphaGates)[0]}`,
      {
        hint: 'use --alpha with Kubernetes 1.36 or later',
      },
    );
  }
  fetchDebianPackages(cacheDir, [etcd], log);
  const build = (module: string) => ensureGoPrograms(cacheDir, module, log);
  return {
    kubernetesVersion: choice.kubernetes,
    kubernetes: choice.kubernetesDir ?? (await build(`kubernetes-${choice.kubernetes}`)),
    etcd: join(packageFolder(cacheDir, etcd), 'usr/bin/etcd'),
    alpha: choice.alpha ?? false,
    runtime: choice.runtime === 'crio' ? locateCrio(choice.crioDir) : await fetchContainerd(choice.runtime, build),
    runtimeLabel,
    nriPlugin: join(await build('nri-plugin'), 'nri-plugin'),
  };
}

async function fetchContainerd(
  name: ContainerdName,
  build: (module: string) => Promise<string>,
): Promise<RuntimePrograms> {
  const { series, module }: ContainerdSource = containerdSources[name];
  return { kind: 'containerd', series, ...(module === undefined ? {} : { dir: await build(module) }) };
}

/** Display name of a runtime: `containerd 2.1`, `CRI-O 1.37.0 with crun 1.8.1`. @throws CrioError, CommandError */
export function describeRuntime({ runtime, crioDir }: Pick<ProgramChoice, 'runtime' | 'crioDir'>): string {
  return runtime === 'crio' ? describeCrio(locateCrio(crioDir)) : runtime.replace('-', ' ');
}

/** The default version of Kubernetes, unless programs are named: `1.36.3`. */
export function kubernetesRelease(minor: KubernetesVersion): string {
  return pinnedVersion(`kubernetes-${minor}`, 'k8s.io/kubernetes') ?? minor;
}

/** Display name of a pair: `Kubernetes 1.36.3, containerd 2.1`. @throws CrioError, CommandError */
export function describePair(choice: ProgramChoice): string {
  return `Kubernetes ${kubernetesRelease(choice.kubernetes)}, ${describeRuntime(choice)}`;
}

export const oldestPair: ProgramChoice = { kubernetes: '1.34', runtime: 'containerd-1.7' };

/** The pairs that `npm run test:all` runs: the newest Kubernetes, and the oldest one with the oldest containerd. */
export const testedPairs: readonly [ProgramChoice, ...ProgramChoice[]] = [
  { kubernetes: '1.37', runtime: 'containerd-2.1' },
  oldestPair,
];

/** Pass programs to the process of the tests: those of a run, and those from which a node is upgraded to them. */
export const programsVariable = 'NETDRA_CLUSTER_PROGRAMS';
export const olderVariable = 'NETDRA_OLDER_PROGRAMS';

export function toEnv(programs: ClusterPrograms, variable = programsVariable): Record<string, string> {
  return { [variable]: JSON.stringify(programs) };
}

/** @throws NetdraError `programs-missing` */
export function readPrograms(env: NodeJS.ProcessEnv, variable = programsVariable): ClusterPrograms {
  const text = env[variable];
  if (text !== undefined) return JSON.parse(text) as ClusterPrograms;
  throw new NetdraError('programs-missing', `no programs are named in ${variable}`, {
    hint: 'npm run e2e:cluster fetches them and starts the tests',
  });
}
