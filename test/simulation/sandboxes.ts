import type { Container, PodSandbox } from '../../nri/index.ts';
import type { ContainerEdits } from '../doubles/cdi.ts';
import { namespace as podNamespace } from './api-server.ts';
import type { Instance } from './instance.ts';
import type { Namespace } from './links.ts';
import type { SimPod } from './world.ts';

export interface SimSandbox {
  id: string;
  pod: SimPod;
  path: string;
  network: Namespace;
  /** Held by the mount at the path. */
  mount: object;
  /** Held by the pause process. */
  pause: object | undefined;
  /**
   * `making`: RunPodSandbox is under way. `failed`: its left-overs, which the runtime does not report to the kubelet.
   */
  state: 'making' | 'ready' | 'stopped' | 'failed';
  /** Whether it is reported to NRI plugins that connect. */
  isListed: boolean;
  /** Instances of the driver that the runtime has called about its start. */
  toldTo: Set<Instance>;
  /** Its end was requested. */
  isEnding: boolean;
  /** The runtime has lost its record of its namespaces. */
  isNetnsLost: boolean;
  /** Time at which its end began, ms; `undefined` before. */
  endedAtMs: number | undefined;
  /** A network namespace that a process in it has made, and that ends with it. */
  ownNamespace: Namespace | undefined;
}

export interface SimContainer {
  id: string;
  sandbox: SimSandbox;
  state: 'created' | 'running' | 'exited';
  /** The reason why it is not running; `start-error` counts as an exit of the container. */
  reason: 'exit' | 'killed' | 'start-error' | undefined;
  startError: string | undefined;
  /** Its hook waits for a claim. */
  isAtGate: boolean;
  cdiDevices: string[];
  edits: ContainerEdits;
  /** Inodes of the files that it has mounted, by their paths on the host. */
  mounts: Map<string, number | undefined>;
  startedAtMs: number;
  /** Whether a plugin was asked before it was created, and has answered. */
  isApproved: boolean;
}

export function viewOf({ id, pod, path, isNetnsLost }: SimSandbox): PodSandbox {
  return {
    id,
    name: pod.uid,
    uid: pod.uid,
    namespace: podNamespace,
    labels: {},
    annotations: {},
    runtimeHandler: '',
    pid: 0,
    ips: [],
    // One on the host's network still has other namespaces.
    namespaces: isNetnsLost ? [] : [...(path === '' ? [] : [{ type: 'network', path }]), { type: 'pid', path: '' }],
    cgroupParent: `/kubepods/pod${pod.uid}`,
    cgroupsPath: '',
  };
}

export function viewOfContainer({ id, sandbox, state, cdiDevices, edits }: SimContainer): Container {
  return {
    id,
    podSandboxId: sandbox.id,
    name: 'main',
    state: state === 'exited' ? 'stopped' : state,
    labels: {},
    annotations: {},
    args: [],
    env: edits.env,
    mounts: edits.mounts.map(({ hostPath, containerPath }) => ({
      destination: containerPath,
      type: 'bind',
      source: hostPath,
      options: ['ro', 'bind'],
    })),
    createRuntimeHooks: edits.hooks,
    namespaces: [],
    cgroupsPath: '',
    cpu: cpuOf(sandbox.pod.plan.cpus),
    pid: 0,
    createdAtNs: 0,
    startedAtNs: 0,
    finishedAtNs: 0,
    exitCode: 0,
    cdiDevices,
  };
}

/** As the kubelet's static CPU manager sets it. */
function cpuOf(exclusive: readonly number[]): Container['cpu'] {
  if (exclusive.length === 0) return { shares: 512, cpus: '0-3', mems: '' };
  return { shares: 1024 * exclusive.length, cpus: exclusive.join(), mems: '' };
}
