import type { KubeClient } from '../../framework/kube/index.ts';
import type { NetworkAttachmentDefinition, NetworkAttachmentReader } from './network-attachments.ts';

/**
 * Reads NetworkAttachmentDefinitions from the API server. No cache: there is one read for each claim.
 * Source: Kubernetes Network Custom Resource Definition De-facto Standard, v1.3, section 3.
 */
export function createKubeNetworkAttachmentReader(client: Pick<KubeClient, 'request'>): NetworkAttachmentReader {
  return {
    readNetworkAttachment: (namespace, name, signal) => {
      const [inNamespace, called] = [namespace, name].map(encodeURIComponent);
      return client.request<NetworkAttachmentDefinition>({
        method: 'GET',
        path: `/apis/k8s.cni.cncf.io/v1/namespaces/${inNamespace}/network-attachment-definitions/${called}`,
        signal,
      });
    },
  };
}
