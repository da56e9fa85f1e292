import type { PodSandbox } from '../../nri/index.ts';
import { NetnsHandle } from '../netlink/index.ts';
import { SandboxError } from './errors.ts';

/** The path of the pod's network namespace; containerd names none for a pod on the host's network. */
export function netnsPathOf(pod: PodSandbox): string | undefined {
  return pod.namespaces.find(({ type }) => type === 'network')?.path || undefined;
}

/**
 * Opens the pod's network namespace.
 * @throws SandboxError `host-network`: containerd gives such a pod no entry, CRI-O one that is the host's own namespace
 */
export function openPodNetns(pod: PodSandbox): NetnsHandle {
  const path = netnsPathOf(pod);
  if (path === undefined) throw hostNetwork(pod);
  const netns = NetnsHandle.open(path);
  if (!netns.isHost()) return netns;
  netns[Symbol.dispose]();
  throw hostNetwork(pod);
}

function hostNetwork(pod: PodSandbox): SandboxError {
  return new SandboxError(
    'host-network',
    `pod ${pod.namespace}/${pod.name} uses the host's network, where it cannot get a VF of its own`,
    { hint: 'remove hostNetwork from the pod, or the claim' },
  );
}
