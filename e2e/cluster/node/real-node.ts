import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { run } from '../../../scripts/packages/run.ts';
import { KubeClient, type KubeList } from '../../../src/framework/kube/index.ts';
import { loadKubeConfig } from '../../../src/framework/kube/kube-config.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { NodeError } from '../../node/errors.ts';
import { listFolder, listProcesses } from '../../node/host-state.ts';
import type { Program } from '../../node/program.ts';
import { endProcesses, killProcess, removeCgroups, unmountBelow } from '../../node/teardown.ts';
import { type Registry, startRegistry } from '../../release/registry.ts';
import { ControlPlane } from '../control-plane.ts';
import { type ContainerdPrograms, startContainerdRuntime } from './containerd.ts';
import { type CrioPrograms, startCrio } from './crio.ts';
import { kubeletDir, makeCgroup, startKubelet } from './kubelet.ts';
import type { Runtime } from './runtime.ts';

export type RuntimePrograms = ContainerdPrograms | CrioPrograms;

export interface RealNodeOptions {
  /** The program `etcd`. */
  etcd: string;
  /** Folder with the programs of Kubernetes. */
  kubernetes: string;
  /** The program `kubelet`, if it is of an older version than the control plane. */
  kubelet?: string;
  runtime: RuntimePrograms;
  featureGates?: Record<string, boolean>;
  pinsCpus?: boolean;
  /** See `KubeletFiles`. */
  syncFrequency?: string;
}

export const nodeName = 'netdra-e2e';
const nodeAddress = '10.250.0.1';

/** Folders at the paths of the chart's default values. */
export const nodePaths = { kubeletPlugins: `${kubeletDir}/plugins`, cdi: '/var/run/cdi', nri: '/var/run/nri' };

/**
 * The boot id of the node, in a folder that the driver's pod mounts: a container has its own /proc, so the driver
 * must be given the path. The kubelet finds it in its usual place.
 */
export const bootIdPath = `${nodePaths.kubeletPlugins}/sriov.netdra.dev/boot-id`;

/** Parts that tests kill. */
export const nodeParts = ['kubelet', 'driver', 'container runtime', 'API server'] as const;
export type NodePart = (typeof nodeParts)[number];

/**
 * A cluster of one real node: control plane, registry, container runtime and kubelet, in the namespaces made by
 * scripts/in-node.sh. Disposing ends all of it, including the pods.
 */
export class RealNode implements AsyncDisposable {
  readonly dir: string;
  readonly controlPlane: ControlPlane;
  /** The registry from which the node pulls images. */
  readonly registry: Registry;
  readonly runtime: Runtime;
  readonly kubelet: Program;
  readonly #client: KubeClient;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    parts: Pick<RealNode, 'dir' | 'controlPlane' | 'registry' | 'runtime' | 'kubelet'>,
    stack: AsyncDisposableStack,
  ) {
    this.dir = parts.dir;
    this.controlPlane = parts.controlPlane;
    this.registry = parts.registry;
    this.runtime = parts.runtime;
    this.kubelet = parts.kubelet;
    this.#stack = stack;
    const config = loadKubeConfig(this.controlPlane.adminKubeconfig);
    this.#client = stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra-e2e' }));
  }

  /** @throws NodeError, ContainerdError, RegistryError, CommandError */
  static async start(options: RealNodeOptions): Promise<RealNode> {
    if (!process.env.NETDRA_CGROUP_PARENT) {
      throw new NodeError('not-in-node', 'a cluster of the suite runs on a node of its own only', {
        hint: 'run this through scripts/in-node.sh',
      });
    }
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'cluster-'));
    // Pods in a user namespace reach their root file system through this folder.
    chmodSync(dir, 0o711);
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    // Containers have to see volumes that the kubelet mounts, and the kubelet those that drivers mount.
    run('mount', ['--make-rshared', '/']);
    run('ip', ['address', 'replace', `${nodeAddress}/32`, 'dev', 'lo']);
    mkdirSync(kubeletDir, { recursive: true });
    // Mounts of the node's overlay cannot be ID-mapped for pods in a user namespace, and volumes are such mounts.
    run('mount', ['-t', 'tmpfs', '-o', 'mode=750', 'kubelet', kubeletDir]);
    stack.defer(() => void run('umount', ['--lazy', kubeletDir]));
    for (const folder of [...Object.values(nodePaths), dirname(bootIdPath)]) mkdirSync(folder, { recursive: true });
    writeBootId();
    run('mount', ['--bind', bootIdPath, '/proc/sys/kernel/random/boot_id']);
    const {
      etcd,
      kubernetes,
      kubelet: program = join(kubernetes, 'kubelet'),
      featureGates,
      pinsCpus = false,
      syncFrequency,
    } = options;
    const gates = featureGates === undefined ? {} : { featureGates };
    const registry = stack.use(await startRegistry({ cacheDir: cacheFolder(process.env) }));
    const [controlPlane, runtime] = await Promise.all([
      ControlPlane.start({ dir, etcd, kubernetes, ...gates }),
      startRuntime(dir, options.runtime, registry),
    ]);
    stack.use(controlPlane);
    stack.use(runtime);
    const kubelet = await startKubelet({
      dir,
      nodeName,
      nodeAddress,
      pinsCpus,
      program,
      ...gates,
      ...(syncFrequency && { syncFrequency }),
      authority: controlPlane.authority,
      server: controlPlane.server,
      runtimeSocket: runtime.socketPath,
      cgroupRoot: runtime.cri.cgroupParent,
    });
    stack.defer(() => unmountVolumes());
    stack.use(kubelet);
    return new RealNode({ dir, controlPlane, registry, runtime, kubelet }, stack.move());
  }

  /** Runs kubectl as the administrator. @returns its output; on failure, the error text */
  kubectl(...args: string[]): string {
    return this.controlPlane.kubectl(...args);
  }

  /** Objects of all namespaces, by the API path of their kind: `/api/v1/pods`. @throws KubeError */
  async list<T>(path: string): Promise<T[]> {
    return (await this.#client.request<KubeList<T>>({ method: 'GET', path })).items;
  }

  /** Pids of the driver's instances. */
  driverPids(): number[] {
    const isDriver = (args: string[]) => args.some((arg) => arg.startsWith('--driver-name='));
    return listProcesses().flatMap(({ pid, args }) => (isDriver(args) ? [pid] : []));
  }

  /** Ends the driver with SIGKILL, unless it has just ended by itself. */
  killDriver(): void {
    for (const pid of this.driverPids()) killProcess(pid);
  }

  /**
   * Ends parts of the cluster with SIGKILL, all of them before the first one is restarted, and waits until they serve.
   * The kubelet restarts the driver, which is not waited for.
   * @throws NodeError, ContainerdError
   */
  async crash(...parts: NodePart[]): Promise<void> {
    const { kubelet, runtime, controlPlane } = this;
    const isHit = (part: NodePart) => parts.includes(part);
    const before = [
      ...(isHit('API server') ? [controlPlane.programs.apiServer] : []),
      ...(isHit('container runtime') ? [runtime] : []),
    ];
    const hit = isHit('kubelet') ? [...before, kubelet] : before;
    const ended = hit.map((each) => each.stop('SIGKILL'));
    if (isHit('driver')) this.killDriver();
    await Promise.all(ended);
    await Promise.all(before.map((each) => each.start()));
    await kubelet.start();
  }

  /**
   * Keeps what a node has after a power cut: its disk. Processes, cgroups, network namespaces, links, mounts and the
   * content of /run are gone, and the boot id changes. The control plane is elsewhere and keeps running.
   */
  async reboot(): Promise<void> {
    const { kubelet, runtime } = this;
    const { socketPath, cri, dir, volatileDirs } = runtime;
    await Promise.all([kubelet.stop('SIGKILL'), runtime.stop('SIGKILL')]);
    await endProcesses(socketPath, cri.cgroupParent);
    unmountVolumes();
    unmountBelow(dir);
    for (const folder of ['/run/netns', nodePaths.cdi, nodePaths.nri, ...volatileDirs]) {
      unmountBelow(folder);
      for (const name of listFolder(folder)) rmSync(join(folder, name), { recursive: true, force: true });
    }
    // The other end of a pair is removed with the first one.
    for (const name of listFolder('/sys/class/net')) {
      if (name !== 'lo') spawnSync('ip', ['link', 'delete', name]);
    }
    removeCgroups(cri.cgroupParent);
    makeCgroup(cri.cgroupParent);
    writeBootId();
    await runtime.start();
    await kubelet.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

async function startRuntime(parent: string, programs: RuntimePrograms, registry: Registry): Promise<Runtime> {
  const dir = join(parent, 'runtime');
  mkdirSync(dir);
  const options = { dir, registry, cdiSpecDir: nodePaths.cdi, nriSocketPath: join(nodePaths.nri, 'nri.sock') };
  return programs.kind === 'crio'
    ? await startCrio(programs, options)
    : await startContainerdRuntime(programs, options);
}

/** In place: the file is mounted. */
function writeBootId(): void {
  writeFileSync(bootIdPath, `${randomUUID()}\n`);
}

/** Token and ConfigMap volumes are mounts below the kubelet's folder. */
function unmountVolumes(): void {
  run('sh', ['-c', `awk '$5 ~ "^${kubeletDir}/" { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount -l`]);
}
