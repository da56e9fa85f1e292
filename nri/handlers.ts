import type { Container } from './container.ts';
import type { PodSandbox } from './pod.ts';
import type { RuntimeInfo } from './runtime-info.ts';

export interface CallContext {
  /** How long the runtime waits for the answer, from when it asked. After that it continues as if all were well. */
  timeoutMs: number;
  /** Aborts when an answer is no longer useful: shortly before the time limit, or when the connection is lost. */
  signal: AbortSignal;
}

/** @throws any error: the runtime gets its message as the reason of the refusal, and stays connected */
export type PodHandler = (pod: PodSandbox, context: CallContext) => void | Promise<void>;

/** What the runtime is to change about a container before it creates it. */
export interface ContainerAdjustment {
  /** Variables to set, in place of those of the same names. */
  env?: { name: string; value: string }[];
  /** Mounts to add, in place of those with the same destinations. */
  mounts?: Container['mounts'];
}

/** Like a `PodHandler`; the container is described as the runtime is about to create it. @returns changes, if any */
export type ContainerHandler = (
  pod: PodSandbox,
  container: Container,
  context: CallContext,
) => void | Promise<void> | ContainerAdjustment | undefined | Promise<ContainerAdjustment | undefined>;

/**
 * A plugin's handlers. It is subscribed to the events that have a handler here. Any event may come for any sandbox at
 * any time: be ready for a stop or a removal without an earlier run, for a removal without a stop, and for repeats.
 */
export interface PluginHandlers {
  /**
   * Identifies the runtime. An error refuses the connection.
   * @param config from the runtime's own files; empty unless the runtime started this process
   */
  configure?(runtime: RuntimeInfo, config: string): void | Promise<void>;
  /**
   * Lists what exists already, once for each connection. The runtime has already been answered: the handler may take
   * its time, pod events may come meanwhile, and an error is only logged. Not called in a process that a runtime with
   * NRI before v0.7 (containerd up to 1.7.25) started itself.
   */
  synchronize?(pods: PodSandbox[], containers: Container[]): void | Promise<void>;
  /** The sandbox exists, with its network, and has no container yet. An error keeps the pod from starting. */
  runPodSandbox?: PodHandler;
  /** containerd ignores an error; CRI-O then does not stop the pod, and the kubelet retries. */
  stopPodSandbox?: PodHandler;
  /** Both ignore an error. */
  removePodSandbox?: PodHandler;
  /**
   * A container is about to be created. An error refuses it, and the kubelet retries with the message as its reason.
   * The runtime refuses a container of which two plugins change the same variable or mount. Subscribing to this costs a call for
   * every container of the node.
   */
  createContainer?: ContainerHandler;
  connected?(runtime: RuntimeInfo): void;
  /** No more events arrive; those missed are lost. Only after `connected`. `error` says why, if anything went wrong. */
  disconnected?(error: Error | undefined): void;
}
