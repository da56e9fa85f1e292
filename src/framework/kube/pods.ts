import { isKubeError } from './errors.ts';
import type { KubeRequests } from './kube-client.ts';

interface Pod {
  metadata?: { uid?: string; deletionTimestamp?: string };
  status?: { phase?: string };
}

/**
 * Returns whether the pod still needs its devices: it exists under its UID, is not being deleted, and has not ended (an evicted
 * pod stays as `Failed`).
 * @throws KubeError if the API server does not answer
 */
export async function isPodWanted(
  client: KubeRequests,
  { namespace, name, uid }: { namespace: string; name: string; uid: string },
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const path = `/api/v1/namespaces/${namespace}/pods/${name}`;
    const { metadata, status } = await client.request<Pod>({ method: 'GET', path, signal });
    const isOver = status?.phase === 'Failed' || status?.phase === 'Succeeded';
    return metadata?.uid === uid && metadata.deletionTimestamp === undefined && !isOver;
  } catch (error) {
    if (isKubeError(error, 'api-not-found')) return false;
    throw error;
  }
}
