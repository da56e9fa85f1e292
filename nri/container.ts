import { type LinuxNamespace, parseNamespaces, withoutEmpty } from './pod.ts';
import type { WireContainer } from './wire.ts';

/** Container states, in the order of the runtime's numbers. */
const states = ['unknown', 'created', 'paused', 'running', 'stopped'] as const;
export type ContainerState = (typeof states)[number];

/**
 * A container as the runtime reports it to `synchronize` and `createContainer`. Fields that the runtime omits are empty, never
 * absent.
 */
export interface Container {
  id: string;
  /** `PodSandbox.id` of the pod that the container belongs to. */
  podSandboxId: string;
  name: string;
  state: ContainerState;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  args: string[];
  /** Environment variables as `NAME=value`. */
  env: string[];
  mounts: { destination: string; type: string; source: string; options: string[] }[];
  /** OCI hooks that run on the host before the container's root is entered, CDI's among them. */
  createRuntimeHooks: { path: string; args: string[] }[];
  namespaces: LinuxNamespace[];
  cgroupsPath: string;
  /**
   * CPUs and memory nodes that the container may use, as lists such as `0-3,8`; empty: all. `shares` is 0 if the container
   * has no CPU weight.
   */
  cpu: { shares: number; cpus: string; mems: string };
  /** PID on the host; 0 if the container is not running. */
  pid: number;
  /**
   * Time of creation in nanoseconds since 1970, rounded to the precision of a JavaScript number (some 200 ns); 0 until it has
   * happened. Start and end have the same form.
   */
  createdAtNs: number;
  startedAtNs: number;
  finishedAtNs: number;
  exitCode: number;
  /** Fully qualified CDI names. */
  cdiDevices: string[];
}

const empty = { id: '', podSandboxId: '', name: '', args: [], env: [], pid: 0, exitCode: 0 };

/** Parses a container, filling in fields that are absent on the wire. */
export function parseContainer(message: WireContainer): Container {
  const { linux = {}, hooks = {}, createdAt = 0, startedAt = 0, finishedAt = 0, ...wire } = message;
  const { cpu = {} } = linux.resources ?? {};
  return {
    ...empty,
    ...wire,
    createdAtNs: createdAt,
    startedAtNs: startedAt,
    finishedAtNs: finishedAt,
    state: states[wire.state ?? 0] ?? 'unknown',
    labels: { ...wire.labels },
    annotations: { ...wire.annotations },
    mounts: (wire.mounts ?? []).map((mount) => ({ destination: '', type: '', source: '', options: [], ...mount })),
    createRuntimeHooks: (hooks.createRuntime ?? []).map((hook) => ({ path: '', args: [], ...hook })),
    namespaces: parseNamespaces(linux.namespaces),
    cgroupsPath: linux.cgroupsPath ?? '',
    cpu: { shares: cpu.shares?.value ?? 0, cpus: cpu.cpus ?? '', mems: cpu.mems ?? '' },
    cdiDevices: (wire.cdiDevices ?? []).map(({ name = '' }) => name),
  };
}

/** Formats a container for the runtime's side of the wire: empty fields are left out, as in Go. */
export function formatContainer(container: Partial<Container>): WireContainer {
  const { state, namespaces, cgroupsPath, createdAtNs, startedAtNs, finishedAtNs, cdiDevices, mounts, ...others } =
    container;
  const { createRuntimeHooks, cpu: { shares = 0, cpus, mems } = {}, ...rest } = others;
  const cpu = withoutEmpty({ shares: withoutEmpty({ value: shares }), cpus, mems });
  return withoutEmpty({
    ...rest,
    state: states.indexOf(state ?? 'unknown'),
    mounts: mounts?.map(withoutEmpty),
    hooks: withoutEmpty({ createRuntime: createRuntimeHooks?.map(withoutEmpty) }),
    linux: withoutEmpty({ namespaces: namespaces?.map(withoutEmpty), cgroupsPath, resources: withoutEmpty({ cpu }) }),
    createdAt: createdAtNs,
    startedAt: startedAtNs,
    finishedAt: finishedAtNs,
    cdiDevices: cdiDevices?.map((name) => ({ name })),
  });
}
