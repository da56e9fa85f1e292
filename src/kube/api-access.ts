import type { RequestOptions } from 'node:https';
import { hasServiceAccount, ServiceAccount } from './service-account.ts';

/** Where the API server is, and who we are to it. A `KubeConfig` of client-node is one. */
export interface ApiAccess {
  /** `server` is a URL; `null` if there is no server. */
  getCurrentCluster(): { readonly server: string; readonly proxyUrl?: string | undefined } | null;
  /**
   * Sets whom we trust and what says who we are. Asked before every request, since tokens and certificates are renewed.
   * @throws Error e.g. if a certificate is missing
   */
  applyToHTTPSOptions(options: RequestOptions): Promise<void>;
}

/**
 * How to reach the API server.
 * @param kubeconfig its path; absent: the service account of the pod
 * @throws NetdraError `kubeconfig-missing`, `kubeconfig-unusable`
 */
export async function openApiAccess(kubeconfig: string | undefined): Promise<ApiAccess> {
  if (kubeconfig === undefined && hasServiceAccount()) return new ServiceAccount();
  // Not at the top: it costs more memory than all the rest of the driver, and in a cluster nobody needs it.
  const { loadKubeConfig } = await import('./kube-config.ts');
  return loadKubeConfig(kubeconfig);
}
