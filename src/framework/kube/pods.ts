import { isKubeError } from './errors.ts';
import type { KubeClient } from './kube-client.ts';

/**
 * Whether a pod exists, not just another one of its name, and is not being deleted.
 * @throws KubeError if the API server does not give an answer
 */
export async function isPodWanted(
  client: Pick<KubeClient, 'request'>,
  { namespace, name, uid }: { namespace: string; name: string; uid: string },
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const path = `/api/v1/namespaces/${namespace}/pods/${name}`;
    const pod = await client.request<{ metadata?: { uid?: string; deletionTimestamp?: string } }>({
      ...{ method: 'GET', path, signal },
    });
    return pod.metadata?.uid === uid && pod.metadata.deletionTimestamp === undefined;
  } catch (error) {
    if (isKubeError(error, 'api-not-found')) return false;
    throw error;
  }
}
