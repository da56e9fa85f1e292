import { KubeConfig } from '@kubernetes/client-node';
import { NetdraError } from '../../lib/errors.ts';

/**
 * Access to the API server with all features of client-node.
 * @param path of a kubeconfig
 * @throws NetdraError `kubeconfig-unusable` if it can never work, so that retrying would not help
 */
export function loadKubeConfig(path: string): KubeConfig {
  const config = new KubeConfig();
  try {
    config.loadFromFile(path);
  } catch (cause) {
    // A YAML parser's message continues with lines of the file, which may be secret.
    const [reason] = String((cause as Error).message).split('\n');
    throw new NetdraError('kubeconfig-unusable', `cannot load kubeconfig ${path}: ${reason}`, { path });
  }
  const problem = findProblem(config);
  if (problem !== undefined) {
    throw new NetdraError('kubeconfig-unusable', `kubeconfig ${path} cannot be used: ${problem}`, { path });
  }
  return config;
}

/** Finds what would fail at every request. Files that the kubeconfig names may still appear or be renewed. */
function findProblem(config: KubeConfig): string | undefined {
  const cluster = config.getCurrentCluster();
  if (cluster === null) return 'it has no current cluster';
  const { server = '', skipTLSVerify } = cluster;
  if (!URL.canParse(server)) return `server ${JSON.stringify(server)} is not a URL`;
  const { protocol } = new URL(server);
  if (protocol === 'https:') return undefined;
  if (protocol !== 'http:') return `server ${server} has to begin with https://`;
  // Tokens would be sent in the clear; client-node refuses each request.
  return skipTLSVerify ? undefined : `server ${server} is not encrypted, which needs insecure-skip-tls-verify: true`;
}
