import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { CallOptions, ContainerConfig, CriClient, PodSandboxConfig } from './cri.ts';
import { endSandbox } from './end-sandbox.ts';
import { busyboxImage } from './images.ts';
import { removeCgroups } from './teardown.ts';

/** A runtime, and the location of its pods. */
export interface PodRuntime extends CriClient {
  /** Parent of the pods' cgroups, from the root of each hierarchy. */
  readonly cgroupParent: string;
  /** Parent folder of the pods' logs. */
  readonly podLogsDir: string;
}

export interface PodSpec {
  name: string;
  namespace: string;
  uid: string;
  /** Attempt of the sandbox; a retry after a failed one needs another number, default 0. */
  attempt?: number;
  hostNetwork?: boolean;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

/** A running pod sandbox. */
export interface Sandbox {
  readonly id: string;
  /** Pid of the pause container, in our PID namespace. */
  readonly pid: number;
  /** Path of the network namespace; for a pod on the host's network that of the pause container below /proc. */
  readonly netnsPath: string;
  /** Addresses assigned by CNI, in order, without prefix lengths. */
  readonly ips: string[];
  readonly config: PodSandboxConfig;
}

export interface ContainerSpec {
  name: string;
  /** A retry after an interrupted attempt needs another number, default 0. */
  attempt?: number;
  /** Default: the busybox image. */
  image?: string;
  /** Default: a shell that waits, and ends on SIGTERM. */
  command?: string[];
  /** As returned by the DRA driver: `vendor/class=device`. */
  cdiDevices?: readonly string[];
  env?: Record<string, string>;
  mounts?: ContainerConfig['mounts'];
  annotations?: Record<string, string>;
  /** A CPU of its own, and the NUMA node that its memory is bound to. */
  pinned?: { cpu: number; memoryNode: number };
  /** Id of the user whom its processes belong to; default: root. */
  user?: number;
}

const waitingCommand = ['sh', '-c', 'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done'];

/** The sandbox as the kubelet would request it. */
export function podSandboxConfig(cri: PodRuntime, spec: PodSpec): PodSandboxConfig {
  const { name, namespace, uid, attempt = 0 } = spec;
  return {
    metadata: { name, namespace, uid, attempt },
    ...(spec.hostNetwork ? {} : { hostname: name }),
    logDirectory: join(cri.podLogsDir, `${namespace}_${name}_${uid}`),
    labels: {
      'io.kubernetes.pod.name': name,
      'io.kubernetes.pod.namespace': namespace,
      'io.kubernetes.pod.uid': uid,
      ...spec.labels,
    },
    annotations: spec.annotations ?? {},
    linux: {
      cgroupParent: `${cri.cgroupParent}/pod${uid}`,
      securityContext: { namespaceOptions: { network: spec.hostNetwork ? 'NODE' : 'POD', pid: 'CONTAINER' } },
    },
  };
}

/** Runs a pod sandbox. @throws CriError e.g. when an NRI plugin refuses it */
export async function runPod(cri: PodRuntime, spec: PodSpec, options: CallOptions = {}): Promise<Sandbox> {
  const config = podSandboxConfig(cri, spec);
  mkdirSync(config.logDirectory!, { recursive: true });
  const { podSandboxId: id } = await cri.call('RunPodSandbox', { config }, options);
  const { status, info } = await cri.call('PodSandboxStatus', { podSandboxId: id, verbose: true });
  const { pid, netnsPath } = parseSandboxInfo(info.info ?? '');
  const { ip = '', additionalIps = [] } = status.network ?? {};
  const ips = [ip, ...additionalIps.map((each) => each.ip)].filter((address) => address !== '');
  return { id, pid, netnsPath: netnsPath ?? `/proc/${pid}/ns/net`, ips, config };
}

/** containerd's verbose information about a sandbox: its specification contains the namespaces that it joined. */
export function parseSandboxInfo(text: string): { pid: number; netnsPath: string | undefined } {
  const info = JSON.parse(text) as {
    pid: number;
    runtimeSpec?: { linux?: { namespaces?: { type: string; path?: string }[] } };
  };
  const network = info.runtimeSpec?.linux?.namespaces?.find(({ type }) => type === 'network');
  return { pid: info.pid, netnsPath: network?.path };
}

/** Creates a container. @returns its id @throws CriError e.g. when a CDI device is unknown */
export async function createContainer(cri: CriClient, sandbox: Sandbox, spec: ContainerSpec): Promise<string> {
  const { pinned, user } = spec;
  const config: ContainerConfig = {
    metadata: { name: spec.name, attempt: spec.attempt ?? 0 },
    image: { image: spec.image ?? busyboxImage },
    command: spec.command ?? waitingCommand,
    envs: Object.entries(spec.env ?? {}).map(([key, value]) => ({ key, value })),
    mounts: spec.mounts ?? [],
    labels: { ...sandbox.config.labels, 'io.kubernetes.container.name': spec.name },
    annotations: spec.annotations ?? {},
    logPath: `${spec.name}.log`,
    linux: {
      ...(pinned && {
        resources: { cpuShares: 1024, cpusetCpus: `${pinned.cpu}`, cpusetMems: `${pinned.memoryNode}` },
      }),
      ...(user && { securityContext: { runAsUser: { value: user } } }),
    },
    CDIDevices: (spec.cdiDevices ?? []).map((name) => ({ name })),
  };
  const request = { podSandboxId: sandbox.id, config, sandboxConfig: sandbox.config };
  return (await cri.call('CreateContainer', request)).containerId;
}

/** Starts a container; its hooks may take as long as the kubelet waits. @throws CriError e.g. when a hook fails */
export async function startContainer(cri: CriClient, containerId: string): Promise<void> {
  await cri.call('StartContainer', { containerId }, { timeoutMs: 120_000 });
}

/**
 * Creates and starts a container. If it does not start, it is removed, as the kubelet does before a retry.
 * @returns its id
 * @throws CriError e.g. when a mount source is missing
 */
export async function runContainer(cri: CriClient, sandbox: Sandbox, spec: ContainerSpec): Promise<string> {
  const containerId = await createContainer(cri, sandbox, spec);
  try {
    await startContainer(cri, containerId);
  } catch (error) {
    await cri.call('RemoveContainer', { containerId });
    throw error;
  }
  return containerId;
}

export interface ExecResult {
  stdout: string;
  stderr: string;
  exitCode: number;
}

/** Runs a command in a container to completion. */
export async function exec(
  cri: CriClient,
  containerId: string,
  argv: string[],
  timeoutSeconds = 30,
): Promise<ExecResult> {
  const { stdout, stderr, exitCode } = await cri.call(
    'ExecSync',
    { containerId, cmd: argv, timeout: timeoutSeconds },
    { timeoutMs: (timeoutSeconds + 5) * 1_000 },
  );
  return { stdout: stdout.toString(), stderr: stderr.toString(), exitCode };
}

/**
 * Removes all sandboxes of a pod that the runtime lists, including those whose call was not answered. Like the kubelet.
 * @throws CriError
 */
export async function removePodSandboxes(cri: PodRuntime, podUid: string): Promise<void> {
  const { items } = await cri.call('ListPodSandbox', {});
  for (const { id } of items.filter(({ metadata }) => metadata.uid === podUid)) await endSandbox(cri, id);
  removeCgroups(`${cri.cgroupParent}/pod${podUid}`);
}
