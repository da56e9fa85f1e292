import type { KubeRequests, ObjectMeta } from '../../framework/kube/index.ts';
import type { NamespaceReader } from '../api/namespace-rules.ts';
import type { NetworkAttachmentDefinition, NetworkAttachmentReader } from './network-attachments.ts';

/** Returns a reader of namespaces' labels without a cache: only classes with a namespace selector need it. */
export function createKubeNamespaceReader(client: KubeRequests): NamespaceReader {
  return {
    async readLabels(namespace, signal) {
      const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
      const { metadata } = await client.request<{ metadata?: ObjectMeta }>({ method: 'GET', path, signal });
      return metadata?.labels ?? {};
    },
  };
}

/**
 * Returns a reader of NetworkAttachmentDefinitions without a cache: each claim needs only one read.
 * Source: Kubernetes Network Custom Resource Definition De-facto Standard, v1.3, section 3.
 */
export function createKubeNetworkAttachmentReader(client: KubeRequests): NetworkAttachmentReader {
  return {
    readNetworkAttachment: (namespace, name, signal) => {
      const [inNamespace, called] = [namespace, name].map(encodeURIComponent);
      const path = `/apis/k8s.cni.cncf.io/v1/namespaces/${inNamespace}/network-attachment-definitions/${called}`;
      return client.request<NetworkAttachmentDefinition>({ method: 'GET', path, signal });
    },
  };
}
