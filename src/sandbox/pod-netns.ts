import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { PodSandbox } from '../../nri/index.ts';
import { NetlinkError, NetnsHandle } from '../netlink/index.ts';
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

/** The namespace, or `undefined` if it is gone. @throws NetlinkError `netns-refused`: nobody knows then */
export function openNetnsIfThere(path: string): NetnsHandle | undefined {
  try {
    return NetnsHandle.open(path);
  } catch (error) {
    // A runtime that was killed may leave the plain file on which it had bound the namespace.
    if (error instanceof NetlinkError && ['netns-missing', 'netns-invalid'].includes(error.code)) return undefined;
    throw error;
  }
}

/**
 * Whether the namespace that was at a path is gone for sure: there is nothing in its place, in a directory that can be
 * seen. A file that is no namespace may be one that is not mounted into our container, and too many open files say
 * nothing at all.
 */
export function isNetnsGone(path: string): boolean {
  try {
    NetnsHandle.open(path)[Symbol.dispose]();
    return false;
  } catch (error) {
    return error instanceof NetlinkError && error.code === 'netns-missing' && existsSync(dirname(path));
  }
}

function hostNetwork(pod: PodSandbox): SandboxError {
  return new SandboxError(
    'host-network',
    `pod ${pod.namespace}/${pod.name} uses the host's network, where it cannot get a VF of its own`,
    { hint: 'remove hostNetwork from the pod, or the claim' },
  );
}
