import type { RequestOptions } from 'node:https';
import { NetdraError } from '../../lib/errors.ts';
import { hasServiceAccount, ServiceAccount } from './service-account.ts';

/** Address of the API server and our credentials for it. client-node's `KubeConfig` implements it. */
export interface ApiAccess {
  /** Returns the current cluster, whose `server` is a URL; `null` if there is none. */
  getCurrentCluster(): { readonly server: string; readonly proxyUrl?: string | undefined } | null;
  /**
   * Sets trusted certificates and credentials. Called before every request, since tokens and certificates are renewed.
   * @throws Error e.g. if a certificate is missing
   */
  applyToHTTPSOptions(options: RequestOptions): Promise<void>;
}

/**
 * Opens access to the API server.
 * @param kubeconfig path of a kubeconfig; absent: the service account of the pod
 * @throws NetdraError `kubeconfig-missing`, `kubeconfig-unusable`
 */
export async function openApiAccess(kubeconfig: string | undefined): Promise<ApiAccess> {
  // An empty variable counts as unset, as in kubectl.
  if (!kubeconfig) {
    if (hasServiceAccount()) return new ServiceAccount();
    throw new NetdraError('kubeconfig-missing', 'no API server is known: this is not a pod with a service account', {
      hint: 'give --kubeconfig, or KUBECONFIG in the environment',
    });
  }
  // Imported lazily: the module costs more memory than the rest of the driver, and a driver in a cluster does not need it.
  const { loadKubeConfig } = await import('./kube-config.ts');
  return loadKubeConfig(kubeconfig);
}
