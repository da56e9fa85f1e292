import type { WireNamespace, WirePod } from './wire.ts';

/** A pod's sandbox as the runtime reports it. Fields that the runtime omits are empty, never absent. */
export interface PodSandbox {
  /** ID of this sandbox: when a pod's sandbox is recreated, the `uid` stays and the `id` changes. */
  id: string;
  name: string;
  uid: string;
  namespace: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  runtimeHandler: string;
  /** PID of the pause process; 0 if there is none, as with CRI-O's defaults. */
  pid: number;
  /**
   * IP addresses without prefix length. Empty for pods on the host's network, and with containerd before 2.1 and CRI-O
   * before 1.32.
   */
  ips: string[];
  /**
   * Namespaces under their OCI names. For a pod on the host's network, containerd lists no `network` namespace, and CRI-O lists
   * the host's own path. When a pod stops, the path may no longer exist on the host (CRI-O) or may be missing in this list
   * (containerd up to 2.0). The list stays empty for a sandbox that containerd 2.4 was creating when it was killed.
   */
  namespaces: LinuxNamespace[];
  cgroupParent: string;
  cgroupsPath: string;
}

export interface LinuxNamespace {
  /** `network`, `pid`, `mount`, `ipc`, `uts`, `user`, `cgroup` or `time`. */
  type: string;
  /** Path of the namespace; empty if the runtime creates a new one. */
  path: string;
}

const empty = { id: '', name: '', uid: '', namespace: '', runtimeHandler: '', pid: 0, ips: [] };

/** Parses a pod, filling in fields that are absent on the wire. */
export function parsePodSandbox({ linux = {}, ...wire }: WirePod): PodSandbox {
  return {
    ...empty,
    ...wire,
    labels: { ...wire.labels },
    annotations: { ...wire.annotations },
    namespaces: parseNamespaces(linux.namespaces),
    cgroupParent: linux.cgroupParent ?? '',
    cgroupsPath: linux.cgroupsPath ?? '',
  };
}

/** Formats a pod for the runtime's side of the wire: empty fields are left out, as in Go. */
export function formatPodSandbox(pod: Partial<PodSandbox>): WirePod {
  const { namespaces, cgroupParent, cgroupsPath, ...rest } = pod;
  const linux = withoutEmpty({ namespaces: namespaces?.map(withoutEmpty), cgroupParent, cgroupsPath });
  return withoutEmpty({ ...rest, linux });
}

export function parseNamespaces(wire: WireNamespace[] | undefined): LinuxNamespace[] {
  return (wire ?? []).map(({ type = '', path = '' }) => ({ type, path }));
}

/** Returns the fields whose values differ from their proto3 defaults. */
export function withoutEmpty<T extends object>(message: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const isEmpty = (value: unknown) =>
    value === undefined ||
    value === '' ||
    value === 0 ||
    value === false ||
    (typeof value === 'object' && value !== null && Object.keys(value).length === 0);
  return Object.fromEntries(Object.entries(message).filter(([, value]) => !isEmpty(value))) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
