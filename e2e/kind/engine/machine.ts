import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type CacheEntry, cacheEntryFolder, takeCacheEntries } from '../../../scripts/packages/cache.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { type PackageSet, unpackPackageSet } from '../../../scripts/packages/package-root.ts';
import { NetdraError } from '../../../src/lib/errors.ts';
import { testedPairs } from '../../cluster/programs.ts';
import { ensureGoPrograms, pinnedVersion } from '../../go/build.ts';
import { fetchConsumerPackages } from '../../release/consumer-image.ts';
import { buildDriverImage } from '../../release/driver-image.ts';
import { helmVersions } from '../../release/helm.ts';
import { type KindSettings, repository } from '../settings.ts';
import { nodePackages } from './node-image.ts';
import { podmanPackages } from './podman.ts';

type Log = (line: string) => void;

const kubernetesModule = `kubernetes-${testedPairs[0].kubernetes}`;

/** Everything that the suite needs on its separate node, which has no network. Paths are absolute. */
export interface EngineRun {
  cacheDir: string;
  settings: KindSettings;
  /** Folders made by `unpackPackageSet`. */
  packages: { podman: string; node: string };
  /** Folders with programs. */
  programs: { kind: string; helm: string; servers: string; kubeadm: string };
  /** Of Kubernetes, e.g. `v1.37.2`. */
  version: string;
  /** A folder for podman's containers, removed after the run. */
  store: string;
}

/** Passes an {@link EngineRun} to inside.ts. */
export const runVariable = 'NETDRA_KIND_RUN';

/** The folder of the cache with podman, the packages of a node, and images of nodes. */
export const engineFolder = (cacheDir: string) => join(cacheDir, 'kind-engine');

function packageEntries(log: Log): CacheEntry[] {
  const entry = (name: string, set: PackageSet): CacheEntry => ({
    name,
    inputs: set,
    build: (dir) => {
      log(`fetching Debian packages: ${set.packages.join(', ')} (${set.suite})`);
      unpackPackageSet(dir, set, '/etc/apt');
    },
  });
  return [entry('podman', podmanPackages), entry('node-packages', nodePackages)];
}

/** Fetches podman and what a node is made of from Debian. @throws PackageError, CommandError */
export function fetchEnginePackages(cacheDir: string, log: Log): void {
  takeCacheEntries(engineFolder(cacheDir), packageEntries(log)).lock[Symbol.dispose]();
}

/** Builds kind, Helm and the programs of Kubernetes with Go, unless the cache has them. @throws GoBuildError */
export async function buildEnginePrograms(cacheDir: string, log: Log): Promise<EngineRun['programs']> {
  const servers = await ensureGoPrograms(cacheDir, kubernetesModule, log);
  const kubeadm = await ensureGoPrograms(cacheDir, kubernetesModule, log, 'kubeadm');
  const kind = await ensureGoPrograms(cacheDir, 'kind', log);
  const helm = await ensureGoPrograms(cacheDir, helmVersions[0], log);
  return { servers, kubeadm, kind, helm };
}

/** The versions of what the suite runs on here: `kind 0.33.0, Kubernetes 1.37.2, podman of bookworm`. */
export function describeEngine(): string {
  const kind = pinnedVersion('kind', 'sigs.k8s.io/kind');
  return `kind ${kind}, Kubernetes ${pinnedVersion(kubernetesModule, 'k8s.io/kubernetes')}, podman of ${podmanPackages.suite}`;
}

/**
 * Runs the suite on a separate node with an engine of its own, which ends with the run, in whatever way that ends.
 * Needs root; the network too, for what the cache lacks.
 * @returns whether all tests passed
 * @throws NetdraError `not-root`; GoBuildError, PackageError, CommandError
 */
export async function runOnOwnEngine(settings: KindSettings, env: NodeJS.ProcessEnv, log: Log): Promise<boolean> {
  if (process.getuid?.() !== 0) {
    throw new NetdraError(
      'not-root',
      'a container engine of its own needs root, and neither docker nor podman answers',
      {
        hint: 'start one of them, or run this as root',
      },
    );
  }
  const cacheDir = cacheFolder(env);
  fetchEnginePackages(cacheDir, log);
  fetchConsumerPackages(cacheDir, log);
  buildDriverImage(cacheDir, log);
  const programs = await buildEnginePrograms(cacheDir, log);
  const [podman = '', node = ''] = packageEntries(log).map((entry) => cacheEntryFolder(engineFolder(cacheDir), entry));
  const version = `v${pinnedVersion(kubernetesModule, 'k8s.io/kubernetes')}`;
  const stores = join(engineFolder(cacheDir), 'runs');
  const store = makeStore(stores);
  try {
    const run: EngineRun = { cacheDir, settings, packages: { podman, node }, programs, version, store };
    // in-node.sh passes the signal on, so the node does not outlive this process.
    const command = ['--pdeathsig', 'TERM', 'bash', 'scripts/in-node.sh', 'node', 'e2e/kind/engine/inside.ts'];
    const child = spawn('setpriv', command, {
      cwd: repository,
      env: { ...env, [runVariable]: JSON.stringify(run) },
      stdio: 'inherit',
    });
    const [code] = (await once(child, 'exit')) as [number | null];
    return code === 0;
  } finally {
    rmSync(store, { recursive: true, force: true });
  }
}

/** Named by the pid, so that the next run removes those of killed ones. */
function makeStore(folder: string): string {
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) {
    if (!existsSync(`/proc/${name.split('-')[0]}`)) rmSync(join(folder, name), { recursive: true, force: true });
  }
  return mkdtempSync(join(folder, `${process.pid}-`));
}
