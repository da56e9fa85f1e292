import { existsSync } from 'node:fs';
import { delimiter } from 'node:path';
import { KubeConfig } from '@kubernetes/client-node';
import { NetdraError } from '../../lib/errors.ts';

/**
 * Loads access to the API server with all features of client-node.
 * @param path path of a kubeconfig, or several paths as in `KUBECONFIG`, of which the first one takes precedence
 * @param context name of a context; default: the current one
 * @throws NetdraError `kubeconfig-unusable` for a fault that no retry can cure
 */
export function loadKubeConfig(path: string, context?: string): KubeConfig {
  const paths = path.split(delimiter).filter((each) => each !== '');
  // As in kubectl, some of several files may be missing.
  const present = paths.filter((each) => existsSync(each));
  const [first, ...others] = (present.length === 0 ? [path] : present).map(loadFile);
  const config = others.reduce(merge, first ?? new KubeConfig());
  if (context !== undefined) config.setCurrentContext(context);
  const problem = findProblem(config);
  if (problem !== undefined) {
    throw new NetdraError('kubeconfig-unusable', `kubeconfig ${path} cannot be used: ${problem}`, { path });
  }
  return config;
}

/** Loads the service account of the process's pod. */
export function loadPodConfig(): KubeConfig {
  const config = new KubeConfig();
  config.loadFromCluster();
  return config;
}

function loadFile(path: string): KubeConfig {
  const config = new KubeConfig();
  try {
    config.loadFromFile(path);
    return config;
  } catch (cause) {
    // A YAML parser's message continues with lines of the file, which may be secret.
    const [reason] = String((cause as Error).message).split('\n');
    throw new NetdraError('kubeconfig-unusable', `cannot load kubeconfig ${path}: ${reason}`, { path });
  }
}

/** Merges configurations. Where both have a name, keeps the first, as kubectl does: client-node refuses duplicates. */
function merge(config: KubeConfig, other: KubeConfig): KubeConfig {
  const joined = <T extends { name: string }>(own: T[] = [], more: T[] = []) => [
    ...own,
    ...more.filter(({ name }) => !own.some((each) => each.name === name)),
  ];
  config.clusters = joined(config.clusters, other.clusters);
  config.users = joined(config.users, other.users);
  config.contexts = joined(config.contexts, other.contexts);
  config.currentContext ||= other.currentContext;
  return config;
}

/**
 * Returns a fault that would fail every request, if any. A missing file that the kubeconfig names is no such fault: it may
 * still appear.
 */
function findProblem(config: KubeConfig): string | undefined {
  const { currentContext } = config;
  const context = config.getContextObject(currentContext);
  if (currentContext && context === null) {
    const names = config.getContexts().map(({ name }) => name);
    return `it has no context ${currentContext}; it has ${names.join(', ') || 'none'}`;
  }
  if (context?.user && config.getCurrentUser() === null) {
    return `it has no user ${context.user}, whom its context ${currentContext} names`;
  }
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
