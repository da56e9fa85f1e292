import type { Container } from './container.ts';
import type { PodSandbox } from './pod.ts';
import type { RuntimeInfo } from './runtime-info.ts';

export interface CallContext {
  /** How long the runtime waits for the answer, from when it sent the event. After that it proceeds without the answer. */
  timeoutMs: number;
  /** Aborts when an answer is no longer useful: shortly before the time limit, or when the connection is lost. */
  signal: AbortSignal;
}

/** Handles an event of a pod. Any error refuses the event: the runtime reports its message, and the plugin stays connected. */
export type PodHandler = (pod: PodSandbox, context: CallContext) => void | Promise<void>;

/** Changes that the runtime makes to a container before it creates it. */
export interface ContainerAdjustment {
  /**
   * Environment variables. Each replaces the container's variable of that name. Names cannot begin with `-`, with which NRI
   * marks a removal.
   */
  env?: { name: string; value: string }[];
  /** Mounts. Each replaces a mount of the container that has the same destination. */
  mounts?: Container['mounts'];
  /**
   * Whether these variables and mounts also replace the ones that another plugin, called earlier, has set. Without it, the
   * runtime refuses the container, even if the other plugin is a second instance of this one, as in a rolling update.
   */
  overrides?: boolean;
}

/** Handles the creation of a container, as `PodHandler` does for pods. @returns changes to the container, if any */
export type ContainerHandler = (
  pod: PodSandbox,
  container: Container,
  context: CallContext,
) => void | Promise<void> | ContainerAdjustment | undefined | Promise<ContainerAdjustment | undefined>;

/**
 * A plugin's event handlers. The plugin is subscribed to the events that have a handler. Any event can arrive for any
 * sandbox at any time: expect a stop or removal without an earlier run, a removal without a stop, and repeated events.
 */
export interface PluginHandlers {
  /**
   * Receives name and version of the runtime, before any event. If it throws, the connection is refused.
   * @param config from the runtime's own files; empty unless the runtime started this process
   */
  configure?(runtime: RuntimeInfo, config: string): void | Promise<void>;
  /**
   * Receives the existing pods and containers, once for each connection. The runtime has already been answered: the handler may
   * take its time, pod events can arrive meanwhile, and an error is only logged. Not called in a process that a runtime with
   * NRI before v0.7 (containerd up to 1.7.25) started itself.
   * @param context `signal` aborts when the connection is lost. The next connection calls the handler again, with a newer list
   * and without waiting for this call
   */
  synchronize?(pods: PodSandbox[], containers: Container[], context: { signal: AbortSignal }): void | Promise<void>;
  /** Handles a new sandbox, which has its network but no container yet. An error keeps the pod from starting. */
  runPodSandbox?: PodHandler;
  /**
   * Handles the stop of a pod. containerd ignores an error. CRI-O does not stop the pod after an error, and the kubelet
   * retries.
   */
  stopPodSandbox?: PodHandler;
  /** Handles the removal of a sandbox. Runtimes ignore errors. */
  removePodSandbox?: PodHandler;
  /**
   * Handles a container that is about to be created. If it throws, the runtime refuses the container with the
   * message, and the kubelet retries. The runtime also refuses a container if two plugins change the same variable or mount
   * without `overrides`. A subscription costs one call for every container of the node.
   */
  createContainer?: ContainerHandler;
  connected?(runtime: RuntimeInfo): void;
  /**
   * Called when the connection has ended, if `connected` was called before. Events are lost until the next connection. `error`
   * is the failure, if any.
   */
  disconnected?(error: Error | undefined): void;
}
