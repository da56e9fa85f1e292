import { explain } from '../../../lib/errors.ts';
import type { KubeRequests } from '../../kube/index.ts';

/**
 * Names that RuntimeClasses can use as `handler` on a node; the name of the default handler is empty. `unknown`: the kubelet
 * reports no handlers, since the runtime does not (containerd before 2.0). `unreadable`: the reason why the Node could not be
 * read.
 */
export type RuntimeHandlers = { names: string[] } | 'unknown' | { unreadable: string };

interface Node {
  status?: { runtimeHandlers?: { name?: string }[] };
}

/** Reads `status.runtimeHandlers` of a Node (core/v1 `NodeRuntimeHandler`). Never rejects. */
export async function readRuntimeHandlers(
  client: KubeRequests,
  nodeName: string,
  signal: AbortSignal,
): Promise<RuntimeHandlers> {
  try {
    const node = await client.request<Node>({ method: 'GET', path: `/api/v1/nodes/${nodeName}`, signal });
    const handlers = node.status?.runtimeHandlers ?? [];
    return handlers.length === 0 ? 'unknown' : { names: handlers.map(({ name }) => name ?? '') };
  } catch (error) {
    return { unreadable: explain(error) };
  }
}
