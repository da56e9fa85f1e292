import type { PodRuntime } from '../../node/pod.ts';
import type { PodNetwork } from '../../node/pod-network.ts';
import type { Registry } from '../../release/registry.ts';

/** The container runtime of a node: what the suite starts, kills and looks at. Disposing ends its pods and itself. */
export interface Runtime extends AsyncDisposable {
  /** Everything that it keeps, but for network namespaces, is below. */
  readonly dir: string;
  readonly socketPath: string;
  readonly cri: PodRuntime;
  readonly network: PodNetwork;
  /** Folder with the CNI plugins. */
  readonly cniBinDir: string;
  /** What a node has below /run besides `/run/netns`: empty after a reboot. */
  readonly volatileDirs: readonly string[];
  /** How long it may take to end a pod. */
  readonly endTimeoutMs: number;
  /** Ends the daemon, not its pods. */
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** Starts the daemon again after `stop`, and waits until it serves. */
  start(): Promise<void>;
  /**
   * Makes an image known to the kubelet.
   * @param archive path of an OCI archive with this image only
   * @param image name with tag
   * @throws CommandError, NetdraError
   */
  provideImage(archive: string, image: string): Promise<void>;
  /** Whether something that is left on the node is what this runtime itself leaves behind, and no fault of the driver's. */
  isOwnLeak(leftover: string): boolean;
  /** Removes what this version is known to leak and what would keep it from a restart, as the docs say. @throws CommandError */
  removeLeaks(): void;
}

export interface RuntimeOptions {
  /** An empty folder. Short: socket paths end at 107 characters. */
  dir: string;
  cdiSpecDir: string;
  /** Where NRI plugins connect. */
  nriSocketPath: string;
  /** Where images can be pulled from. */
  registry: Registry;
}

/**
 * Whether something on the node may be left of a sandbox that was being made when its runtime was killed: the runtime does not
 * know it after its next start. That no VF is in such a namespace is seen on the host.
 */
export function isOfUnfinishedSandbox(leftover: string): boolean {
  return /^(mount|network namespace) \/run\/\w+ns\/|^link veth/.test(leftover);
}

/** How long an NRI plugin may take for one event: the default of both runtimes, so what users have. */
export const nriRequestTimeoutMs = 2_000;
