import type { Container } from './container.ts';
import type { PodSandbox } from './pod.ts';
import type { RuntimeInfo } from './runtime-info.ts';

/** What a pod handler learns about its call. */
export interface CallContext {
  /** How long the runtime waits for the answer, from when it asked. After that it goes on as if all were well. */
  timeoutMs: number;
  /** Aborts when the answer has become pointless: shortly before the time is over, or when the connection is lost. */
  signal: AbortSignal;
}

/** @throws whatever it likes: the runtime gets the message as the reason of its refusal, and stays connected */
export type PodHandler = (pod: PodSandbox, context: CallContext) => void | Promise<void>;

/** As a `PodHandler`; the container is described as the runtime is about to make it. */
export type ContainerHandler = (pod: PodSandbox, container: Container, context: CallContext) => void | Promise<void>;

/**
 * What a plugin wants to hear. It is subscribed to the events that have a handler here. Any sandbox may come in any
 * event at any time: be ready for a stop or a removal without a run before, for a removal without a stop, for repeats.
 */
export interface PluginHandlers {
  /**
   * Who the runtime is. An error refuses the connection.
   * @param config from the runtime's own files; empty unless the runtime started this process
   */
  configure?(runtime: RuntimeInfo, config: string): void | Promise<void>;
  /**
   * What exists already, once for each connection. The runtime had its answer before: it may take its time, pod events
   * may come meanwhile, and an error is only logged. Not called in a process that a runtime with NRI before v0.7
   * (containerd up to 1.7.25) started itself.
   */
  synchronize?(pods: PodSandbox[], containers: Container[]): void | Promise<void>;
  /** The sandbox is there, with its network, and has no container yet. An error keeps the pod from starting. */
  runPodSandbox?: PodHandler;
  /** An error is ignored by containerd; CRI-O does not stop the pod and has the kubelet try again. */
  stopPodSandbox?: PodHandler;
  /** An error is ignored by both. */
  removePodSandbox?: PodHandler;
  /**
   * A container is about to be made. An error refuses it, and the kubelet tries again with the message as its reason.
   * Adjusting it is not supported. Subscribing to this costs a call for every container of the node.
   */
  createContainer?: ContainerHandler;
  /** From now on events come. */
  connected?(runtime: RuntimeInfo): void;
  /** From now on none come, and those missed are lost. Only after `connected`. `error` says why, if anything went wrong. */
  disconnected?(error: Error | undefined): void;
}
