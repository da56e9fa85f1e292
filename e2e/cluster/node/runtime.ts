import type { PodRuntime } from '../../node/pod.ts';
import type { PodNetwork } from '../../node/pod-network.ts';
import type { Registry } from '../../release/registry.ts';
import type { ContainerdPrograms } from './containerd.ts';

/** The container runtime of a node, which the suite starts, kills and inspects. Disposing ends its pods and itself. */
export interface Runtime extends AsyncDisposable {
  /** All its files, except network namespaces, are below this folder. */
  readonly dir: string;
  readonly socketPath: string;
  readonly cri: PodRuntime;
  readonly network: PodNetwork;
  /** Folder with the CNI plugins. */
  readonly cniBinDir: string;
  /** Folders below /run besides `/run/netns`: empty after a reboot. */
  readonly volatileDirs: readonly string[];
  /** Time that it may take to end a pod. */
  readonly endTimeoutMs: number;
  /** Stops the daemon, not its pods. */
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** Restarts the daemon after `stop`, and waits until it serves. */
  start(): Promise<void>;
  /** Goes on as another version of the same runtime; pods run on. Absent: the suite has one version of it. */
  replaceBy?: (programs: ContainerdPrograms) => Promise<void>;
  /**
   * Makes an image available to the kubelet.
   * @param archive path of an OCI archive with this image only
   * @param image name with tag
   * @throws CommandError, NetdraError
   */
  provideImage(archive: string, image: string): Promise<void>;
  /** Whether a left-over on the node is a leak of this runtime itself, not a fault of the driver. */
  isOwnLeak(leftover: string): boolean;
  /** Removes known leaks of this version that would prevent a restart, as documented. @throws CommandError */
  removeLeaks(): void;
}

export interface RuntimeOptions {
  /** An empty folder. Its path must be short: socket paths are limited to 107 characters. */
  dir: string;
  cdiSpecDir: string;
  /** Socket to which NRI plugins connect. */
  nriSocketPath: string;
  /** Registry from which images can be pulled. */
  registry: Registry;
}

/**
 * Whether something on the node may be left of a sandbox that was being created when its runtime was killed: after its
 * restart the runtime does not know it. That such a namespace contains no VF is checked on the host.
 */
export function isOfUnfinishedSandbox(leftover: string): boolean {
  return /^(mount|network namespace) \/run\/\w+ns\/|^link veth/.test(leftover);
}

/** Time limit of an NRI plugin for one event: the default of both runtimes, and so what users have. */
export const nriRequestTimeoutMs = 2_000;
