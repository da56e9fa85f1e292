import { isKubeError } from './errors.ts';
import type { KubeClient } from './kube-client.ts';

/** Identifies one pod: another one may have its name by now. */
export interface PodReference {
  namespace: string;
  name: string;
  uid: string;
}

interface Pod {
  metadata?: { uid?: string; deletionTimestamp?: string };
  status?: { phase?: string };
}

/**
 * Whether a pod exists, is not being deleted, and has not ended: an evicted one stays as `Failed`.
 * @throws KubeError if the API server does not give an answer
 */
export async function isPodWanted(
  client: Pick<KubeClient, 'request'>,
  { namespace, name, uid }: PodReference,
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
