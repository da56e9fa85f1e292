import { SandboxError, type SandboxIdentity, type SandboxPlace } from '../model/index.ts';
import type { NamespaceOpener, NetworkNamespace } from '../vf/networks.ts';
import type { PodSandbox } from './container-fields.ts';

/** Facts about a sandbox that the runtime reports. */
export interface SandboxFacts extends SandboxIdentity {
  /**
   * Path of the sandbox's network namespace. Absent if it is unknown, or if the pod uses the host's network: containerd then
   * reports no path.
   */
  netnsPath?: string;
  /** Set if the runtime does not know the sandbox's network namespace. */
  isNetnsUnknown?: true;
}

export function factsOf({ id, uid, namespace, name, namespaces }: PodSandbox): SandboxFacts {
  const netnsPath = namespaces.find(({ type }) => type === 'network')?.path || undefined;
  const facts = { sandboxId: id, podUid: uid, podNamespace: namespace, podName: name };
  if (netnsPath !== undefined) return { ...facts, netnsPath };
  // A sandbox on the host's network still has other namespaces. If containerd ends before it has stored a new sandbox, it
  // lists that sandbox without any namespace for the rest of its life.
  return namespaces.length === 0 ? { ...facts, isNetnsUnknown: true } : facts;
}

/**
 * Opens the network namespace of a sandbox.
 * @throws SandboxError `host-network` (also if CRI-O reports the host's own namespace), `netns-missing`, `netns-unknown`
 */
export function openNamespaceOf(facts: SandboxFacts, networks: NamespaceOpener): NetworkNamespace {
  const { netnsPath, isNetnsUnknown, podNamespace, podName } = facts;
  if (isNetnsUnknown) {
    const message = `the runtime does not report the network namespace of pod ${podNamespace}/${podName}`;
    const hint = 'a container that waits in the start gate reports it; if none does, delete the pod';
    throw new SandboxError('netns-unknown', message, { retriable: true, hint });
  }
  const namespace = netnsPath === undefined ? undefined : networks.open(netnsPath);
  if (namespace !== undefined && !namespace.isHost) return namespace;
  namespace?.[Symbol.dispose]();
  if (netnsPath === undefined || namespace !== undefined) {
    const message = `pod ${podNamespace}/${podName} uses the host's network, where it cannot have a VF of its own`;
    throw new SandboxError('host-network', message, { hint: 'remove hostNetwork from the pod, or the claim' });
  }
  throw netnsMissing({ ...facts, netnsPath });
}

/**
 * Returns whether a sandbox failed only because its namespace is not known yet. Containers that wait in the start gate report
 * the namespace; if the runtime was restarted while it created the sandbox, the kubelet starts them some seconds later.
 */
export function isLocatedSoon(error: unknown, knownForMs: number): boolean {
  return error instanceof SandboxError && error.code === 'netns-unknown' && knownForMs < 30_000;
}

export function netnsMissing({ netnsPath: path, podNamespace, podName }: SandboxPlace): SandboxError {
  const message = `pod ${podNamespace}/${podName} has no network namespace at ${path}`;
  const hint = 'the sandbox is being removed, or the directory is not mounted with mountPropagation: HostToContainer';
  return new SandboxError('netns-missing', message, { path, retriable: true, hint });
}
