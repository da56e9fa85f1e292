import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import {
  type ApiAccess,
  hasServiceAccount,
  isKubeError,
  KubeClient,
  type KubeList,
  listAll,
  openApiAccess,
  ResourceApi,
} from '../../../framework/kube/index.ts';
import { systemClock } from '../../../lib/clock.ts';
import { NetdraError } from '../../../lib/errors.ts';

export interface ClusterOptions {
  /** Default: `~/.kube/config`; in a pod, its service account. */
  kubeconfig?: string;
  context?: string;
}

/** The API server, with the permissions of the user. */
export class Cluster implements Disposable {
  readonly client: KubeClient;
  /** That of the kubeconfig's context. */
  readonly namespace: string;
  readonly #resources: ResourceApi;

  constructor(access: ApiAccess, namespace = 'default') {
    this.client = new KubeClient(access, { clock: systemClock, userAgent: 'netdra/tools' });
    this.namespace = namespace;
    this.#resources = new ResourceApi(this.client);
  }

  /**
   * Lists objects of resource.k8s.io.
   * @param path below its version: `resourceslices`
   * @throws KubeError, NetdraError `list-forbidden`
   */
  async listResources<T extends object>(path: string, query: Record<string, string> = {}): Promise<T[]> {
    return await this.#listed(path, (page) => this.#resources.list<T>({ path, query: { ...query, ...page } }));
  }

  /** @throws KubeError, NetdraError `list-forbidden` */
  async listPods<T>(query: Record<string, string>): Promise<T[]> {
    const request = { method: 'GET', path: '/api/v1/pods' } as const;
    return await this.#listed('pods', (page) =>
      this.client.request<KubeList<T>>({ ...request, query: { ...query, ...page } }),
    );
  }

  [Symbol.dispose](): void {
    this.client[Symbol.dispose]();
  }

  async #listed<T>(path: string, list: (page: Record<string, string>) => Promise<KubeList<T>>): Promise<T[]> {
    try {
      return await listAll(list);
    } catch (cause) {
      if (!isKubeError(cause, 'api-forbidden')) throw cause;
      throw new NetdraError('list-forbidden', `may not list ${path.split('/').at(-1)}`, {
        cause,
        hint: "the chart's ClusterRole netdra-viewer allows it: an administrator can bind it with kubectl create clusterrolebinding",
      });
    }
  }
}

/**
 * Opens the cluster as kubectl does.
 * @throws NetdraError `kubeconfig-missing`, `kubeconfig-unusable`
 */
export async function openCluster({ kubeconfig, context }: ClusterOptions): Promise<Cluster> {
  const usual = join(homedir(), '.kube/config');
  const path = kubeconfig ?? (existsSync(usual) ? usual : undefined);
  if (path === undefined && context === undefined && hasServiceAccount()) {
    return new Cluster(await openApiAccess(undefined));
  }
  if (path === undefined) {
    throw new NetdraError('kubeconfig-missing', `no API server is known: there is no ${usual}`, {
      hint: 'give --kubeconfig, or KUBECONFIG in the environment',
    });
  }
  // Imported lazily: it costs more than all the rest.
  const { loadKubeConfig } = await import('../../../framework/kube/kube-config.ts');
  const config = loadKubeConfig(path, context);
  return new Cluster(config, config.getContextObject(config.getCurrentContext())?.namespace);
}
