import type { WireNamespace, WirePod } from './wire.ts';

/** A pod's sandbox as the runtime reports it. What a runtime leaves out is empty, never absent. */
export interface PodSandbox {
  /** ID of this sandbox: a pod that is set up again keeps its `uid` and gets another `id`. */
  id: string;
  name: string;
  uid: string;
  namespace: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  runtimeHandler: string;
  /** PID of the pause process; 0 if there is none. CRI-O has none by default. */
  pid: number;
  /** Without prefix length. Empty on the host's network, and with containerd before 2.1 and CRI-O before 1.32. */
  ips: string[];
  /**
   * Under their OCI names. On the host's network, containerd lists no `network` namespace, and CRI-O one whose path is
   * the host's own. When a pod stops, the path may be missing on the host (CRI-O) or here (containerd up to 2.0). Empty
   * for a sandbox that containerd 2.4 was creating when it was killed, for as long as the sandbox lives.
   */
  namespaces: LinuxNamespace[];
  cgroupParent: string;
  cgroupsPath: string;
}

export interface LinuxNamespace {
  /** `network`, `pid`, `mount`, `ipc`, `uts`, `user`, `cgroup` or `time`. */
  type: string;
  /** Empty: newly created, with no path to reach it. */
  path: string;
}

const empty = { id: '', name: '', uid: '', namespace: '', runtimeHandler: '', pid: 0, ips: [] };

/** Fills in fields that are absent on the wire. */
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

/** The reverse, for the runtime's side: empty fields are left out, as in Go. */
export function formatPodSandbox(pod: Partial<PodSandbox>): WirePod {
  const { namespaces, cgroupParent, cgroupsPath, ...rest } = pod;
  const linux = withoutEmpty({ namespaces: namespaces?.map(withoutEmpty), cgroupParent, cgroupsPath });
  return withoutEmpty({ ...rest, linux });
}

export function parseNamespaces(wire: WireNamespace[] | undefined): LinuxNamespace[] {
  return (wire ?? []).map(({ type = '', path = '' }) => ({ type, path }));
}

/** The fields that have a value other than their proto3 default. */
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
