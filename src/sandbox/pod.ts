import type { PodSandbox } from '../../nri/index.ts';
import type { SandboxPlace } from '../state/index.ts';

/** What the runtime says of a sandbox, as far as it matters here. */
export interface SandboxFacts extends Omit<SandboxPlace, 'netnsPath'> {
  /** Absent for a pod on the host's network, where containerd names none. */
  netnsPath?: string;
}

export function factsOf({ id, uid, namespace, name, namespaces }: PodSandbox): SandboxFacts {
  const netnsPath = namespaces.find(({ type }) => type === 'network')?.path || undefined;
  const facts = { sandboxId: id, podUid: uid, podNamespace: namespace, podName: name };
  return netnsPath === undefined ? facts : { ...facts, netnsPath };
}
