import type { KubeClient, ObjectMeta } from '../../framework/kube/index.ts';
import type { NamespaceReader } from '../api/namespace-rules.ts';

/** Reads namespaces from the API server. No cache: only classes with a namespace selector need it. */
export function createKubeNamespaceReader(client: Pick<KubeClient, 'request'>): NamespaceReader {
  return {
    async readLabels(namespace, signal) {
      const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
      const { metadata } = await client.request<{ metadata?: ObjectMeta }>({ method: 'GET', path, signal });
      return metadata?.labels ?? {};
    },
  };
}
