/** The messages of test/proto/cri.proto in the client's form: 64-bit integers are numbers, enums names. */

export interface PodSandboxMetadata {
  name: string;
  uid: string;
  namespace: string;
  attempt: number;
}

export type NamespaceMode = 'POD' | 'CONTAINER' | 'NODE' | 'TARGET';

export interface PodSandboxConfig {
  metadata: PodSandboxMetadata;
  hostname?: string;
  /** Absolute; the `logPath` of containers is relative to it. */
  logDirectory?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  linux?: {
    cgroupParent?: string;
    securityContext?: { namespaceOptions?: { network?: NamespaceMode; pid?: NamespaceMode; ipc?: NamespaceMode } };
  };
}

export type PodSandboxState = 'SANDBOX_READY' | 'SANDBOX_NOTREADY';

export interface PodSandbox {
  id: string;
  metadata: PodSandboxMetadata;
  state: PodSandboxState;
  /** Nanoseconds since 1970, with the precision of a number. */
  createdAt: number;
}

export interface PodSandboxStatus extends PodSandbox {
  /** `ip` is empty for a pod on the host's network. */
  network: { ip: string; additionalIps: { ip: string }[] } | null;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

export interface ContainerMetadata {
  name: string;
  attempt: number;
}

export interface ContainerConfig {
  metadata: ContainerMetadata;
  image: { image: string };
  command?: string[];
  args?: string[];
  envs?: { key: string; value: string }[];
  mounts?: { containerPath: string; hostPath: string; readonly?: boolean }[];
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  /** Relative to the sandbox's `logDirectory`. */
  logPath?: string;
  linux?: {
    resources?: { cpuShares: number; cpusetCpus: string; cpusetMems: string };
    securityContext?: { runAsUser: { value: number } };
  };
  CDIDevices?: { name: string }[];
}

export type ContainerState = 'CONTAINER_CREATED' | 'CONTAINER_RUNNING' | 'CONTAINER_EXITED' | 'CONTAINER_UNKNOWN';

export interface Container {
  id: string;
  podSandboxId: string;
  metadata: ContainerMetadata;
  state: ContainerState;
}

export interface ContainerStatus {
  id: string;
  metadata: ContainerMetadata;
  state: ContainerState;
  createdAt: number;
  startedAt: number;
  finishedAt: number;
  exitCode: number;
  reason: string;
  message: string;
  logPath: string;
}

interface Method<Request, Response = object> {
  request: Request;
  response: Response;
}

/** Every method that `CriClient.call` supports. */
export interface CriMethods {
  Version: Method<object, { runtimeName: string; runtimeVersion: string; runtimeApiVersion: string }>;
  Status: Method<
    { verbose?: boolean },
    { status: { conditions: { type: string; status: boolean; reason: string; message: string }[] } }
  >;
  RunPodSandbox: Method<{ config: PodSandboxConfig; runtimeHandler?: string }, { podSandboxId: string }>;
  StopPodSandbox: Method<{ podSandboxId: string }>;
  RemovePodSandbox: Method<{ podSandboxId: string }>;
  PodSandboxStatus: Method<
    { podSandboxId: string; verbose?: boolean },
    { status: PodSandboxStatus; info: Record<string, string> }
  >;
  ListPodSandbox: Method<object, { items: PodSandbox[] }>;
  CreateContainer: Method<
    { podSandboxId: string; config: ContainerConfig; sandboxConfig: PodSandboxConfig },
    { containerId: string }
  >;
  StartContainer: Method<{ containerId: string }>;
  StopContainer: Method<{ containerId: string; timeout: number }>;
  RemoveContainer: Method<{ containerId: string }>;
  ListContainers: Method<object, { containers: Container[] }>;
  ContainerStatus: Method<
    { containerId: string; verbose?: boolean },
    { status: ContainerStatus; info: Record<string, string> }
  >;
  ExecSync: Method<
    { containerId: string; cmd: string[]; timeout?: number },
    { stdout: Buffer; stderr: Buffer; exitCode: number }
  >;
  ImageStatus: Method<{ image: { image: string } }, { image: { id: string; repoTags: string[] } | null }>;
}
