import { existsSync } from 'node:fs';
import { KubeConfig } from '@kubernetes/client-node';
import { NetdraError } from '../errors.ts';

const tokenPath = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/**
 * How to reach the API server.
 * @param path of a kubeconfig; absent: the service account of the pod
 * @throws NetdraError `kubeconfig-unusable`
 */
export function loadKubeConfig(path: string | undefined): KubeConfig {
  const config = new KubeConfig();
  if (path === undefined) {
    config.loadFromCluster();
    return config;
  }
  try {
    config.loadFromFile(path);
    return config;
  } catch (cause) {
    throw new NetdraError('kubeconfig-unusable', `cannot load kubeconfig ${path}`, { cause, path });
  }
}

/** Whether the process runs in a pod that has a service account. */
export function hasServiceAccount(): boolean {
  return process.env.KUBERNETES_SERVICE_HOST !== undefined && existsSync(tokenPath);
}
