import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { CommandError } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import type { ContainerdSettings } from './containerd-config.ts';
import { layOutContainerd } from './containerd-files.ts';
import { connectCri } from './cri.ts';
import { busyboxImage, makeImageArchive, pauseImage } from './images.ts';
import type { PodRuntime } from './pod.ts';
import { claimPodNetwork, type PodNetwork, releasePodNetwork } from './pod-network.ts';
import { Program } from './program.ts';
import { endProcesses, removeCgroups, removeNetwork, removePods, unmountBelow } from './teardown.ts';
import { type ContainerdSeries, locateTools, type NodeTools } from './tools.ts';

/** A containerd that did not start or failed in a task of the suite. */
export class ContainerdError extends NetdraError {}

export interface ContainerdOptions {
  version: ContainerdSeries;
  /** A folder for all files that it writes; removed with it. A short path: sockets are limited to 107 characters. */
  dir: string;
  /** Folders of CDI specs, default one in `dir`. Created if missing. */
  cdiSpecDirs?: readonly string[];
  /** Socket to which NRI plugins connect, default in `dir`. */
  nriSocketPath?: string;
  /** Time limit for an NRI plugin to register, ms, default 5,000. */
  registrationTimeoutMs?: number;
  /** Time limit for an NRI plugin to handle one event, ms, default 5,000. */
  requestTimeoutMs?: number;
  /** Level of the log file, default `info`. */
  logLevel?: 'debug' | 'info' | 'warn';
  tools?: NodeTools;
  env?: NodeJS.ProcessEnv;
}

/**
 * Starts a containerd with its own root, state, sockets, networks and images in `dir`, and waits until it can run
 * pods. Only on a separate node (scripts/in-node.sh).
 * @throws ContainerdError `not-in-node`, `containerd-failed` (with the end of its log); ToolError
 */
export async function startContainerd(options: ContainerdOptions): Promise<Containerd> {
  const env = options.env ?? process.env;
  if (!env.NETDRA_CGROUP_PARENT) {
    throw new ContainerdError('not-in-node', 'a containerd of the suite runs on a node of its own only', {
      hint: 'run this through scripts/in-node.sh',
    });
  }
  const tools = options.tools ?? locateTools(env);
  const network = claimPodNetwork();
  const settings = layOutContainerd(options, tools, network);
  const daemon = new Containerd(options, tools, settings, network, `${env.NETDRA_CGROUP_PARENT}/${network.name}`);
  try {
    await daemon.start();
    await daemon.importImages();
    return daemon;
  } catch (cause) {
    const log = daemon.logTail();
    await daemon[Symbol.asyncDispose]();
    throw new ContainerdError(
      'containerd-failed',
      `containerd ${options.version} does not serve; its log ends\n${log}`,
      {
        cause,
        path: options.dir,
      },
    );
  }
}

/** A running containerd with images, a pod network and NRI. Disposing ends its pods, everything it started and itself. */
export class Containerd implements AsyncDisposable {
  /** The version that it reports, e.g. `2.1.9+unknown`. */
  version = '';
  readonly dir: string;
  readonly socketPath: string;
  readonly nriSocketPath: string;
  readonly cdiSpecDirs: readonly string[];
  readonly network: PodNetwork;
  readonly cniBinDir: string;
  readonly cniConfDir: string;
  /** For the functions of pod.ts. Remains usable after a restart. */
  readonly cri: PodRuntime;
  readonly #busybox: string;
  readonly #snapshotter: string;
  readonly #options: ContainerdOptions;
  #binDir: string;
  readonly #daemon: Program;
  #disposed: Promise<void> | undefined;

  /** It is not started yet. */
  constructor(
    options: ContainerdOptions,
    tools: NodeTools,
    settings: ContainerdSettings,
    network: PodNetwork,
    cgroupParent: string,
  ) {
    const { dir, logLevel = 'info' } = options;
    this.dir = dir;
    this.socketPath = settings.socketPath;
    this.nriSocketPath = settings.nri.socketPath;
    this.cdiSpecDirs = settings.cdiSpecDirs;
    this.network = network;
    this.cniBinDir = tools.cniBinDir;
    this.cniConfDir = settings.cniConfDir;
    this.cri = { ...connectCri(settings.socketPath), cgroupParent, podLogsDir: join(dir, 'pod-logs') };
    this.#busybox = tools.busybox;
    this.#snapshotter = settings.snapshotter;
    this.#options = options;
    this.#binDir = tools.containerdDirs[options.version];
    this.#daemon = new Program({
      ...programIn(this.#binDir, tools),
      args: ['--config', join(dir, 'config.toml'), '--log-level', logLevel],
      logPath: join(dir, 'containerd.log'),
      isReady: async () => {
        this.version = (await this.cri.call('Version', {}, { timeoutMs: 2_000 })).runtimeVersion;
        return true;
      },
    });
  }

  /** Pid of the daemon; changes after a restart. */
  get pid(): number {
    return this.#daemon.pid;
  }

  /** Restarts the daemon after `stop`, and waits until it serves. */
  start(): Promise<void> {
    return this.#daemon.start();
  }

  /** Stops the daemon, not its pods. Default: SIGTERM. */
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    return this.#daemon.stop(signal);
  }

  /** `stop` and `start`. */
  restart(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    return this.#daemon.restart(signal);
  }

  /** Goes on as another version, with a configuration for it. Pods run on. @throws NodeError `program-ended`, `not-ready` */
  async replaceBy(version: ContainerdSeries, tools: NodeTools): Promise<void> {
    layOutContainerd({ ...this.#options, version }, tools, this.network);
    this.#binDir = tools.containerdDirs[version];
    await this.#daemon.replaceBy(programIn(this.#binDir, tools));
  }

  /** The last lines of its log. */
  logTail(lines = 30): string {
    return this.#daemon.logTail(lines);
  }

  /** Imports the suite's images and waits until the CRI side, which learns of them by an event, knows them. */
  async importImages(): Promise<void> {
    const archive = join(this.dir, 'images.tar');
    writeFileSync(archive, makeImageArchive(this.#busybox));
    // Imported by ctr itself: containerd's own import only unpacks for snapshotters in its configuration.
    await this.ctr('images', 'import', '--local', '--snapshotter', this.#snapshotter, archive);
    rmSync(archive);
    const deadline = performance.now() + 10_000;
    for (const image of [busyboxImage, pauseImage]) {
      while ((await this.cri.call('ImageStatus', { image: { image } })).image === null) {
        if (performance.now() > deadline) {
          throw new ContainerdError('image-missing', `containerd does not know ${image} after its import`);
        }
        await sleep(10);
      }
    }
  }

  /** Pid of a running container's first process, in our PID namespace. */
  async pidOf(containerId: string): Promise<number> {
    const { info } = await this.cri.call('ContainerStatus', { containerId, verbose: true });
    return (JSON.parse(info.info ?? '{}') as { pid: number }).pid;
  }

  /** Runs `ctr` in the namespace of the pods. @returns its stdout */
  async ctr(...args: string[]): Promise<string> {
    const ctr = join(this.#binDir, 'ctr');
    const all = ['--address', this.socketPath, '--namespace', 'k8s.io', ...args];
    try {
      const { stdout } = await promisify(execFile)(ctr, all, { maxBuffer: 64 << 20, timeout: 300_000 });
      return stdout;
    } catch (cause) {
      throw new CommandError('command-failed', `ctr ${args.join(' ')} failed`, { cause, path: ctr });
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed ??= this.#dispose();
    return this.#disposed;
  }

  async #dispose(): Promise<void> {
    if (this.#daemon.isRunning && this.version !== '') await removePods(this.cri);
    await this.stop();
    this.cri[Symbol.dispose]();
    // Left-overs that the runtime could not end: shims have its socket as argument, containers are in its cgroups.
    await endProcesses(this.socketPath, this.cri.cgroupParent);
    unmountBelow(this.dir);
    removeNetwork(this.network);
    removeCgroups(this.cri.cgroupParent);
    releasePodNetwork(this.network);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** containerd looks for its shim in PATH first. */
function programIn(binDir: string, { runc }: NodeTools) {
  const env = { ...process.env, PATH: [binDir, dirname(runc), process.env.PATH].join(':') };
  return { program: join(binDir, 'containerd'), env };
}
