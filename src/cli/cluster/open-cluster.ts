import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { KubeConfig } from '@kubernetes/client-node';
import type { StoredView } from '../../driver/nodeview/index.ts';
import type { NetworkDevicePolicy } from '../../driver/policy/index.ts';
import {
  hasServiceAccount,
  isKubeError,
  KubeClient,
  type KubeList,
  listAll,
  ResourceApi,
  type ResourceClaim,
} from '../../framework/kube/index.ts';
import type { DeviceTaint } from '../../framework/resourceslice/index.ts';
import { systemClock } from '../../lib/clock.ts';
import { NetdraError } from '../../lib/errors.ts';
import type { DriverPod } from './driver-pods.ts';
import type { ExecResult } from './pod-exec.ts';

export interface ClusterOptions {
  /** Path of the kubeconfig. Default: `~/.kube/config`; in a pod, its service account. */
  kubeconfig?: string;
  context?: string;
}

/** A NodeNetworkDevices object, with the name of its node. */
export interface ListedView {
  metadata: { name: string };
  status?: StoredView;
}

/** A taint that an administrator applies to devices. Source: resource.k8s.io/v1, since Kubernetes 1.37. */
export interface DeviceTaintRule {
  metadata: { name: string };
  spec: {
    /** Fields that a device must match; empty: every device; absent: no device. */
    deviceSelector?: { driver?: string; pool?: string; device?: string };
    taint: DeviceTaint;
  };
}

/** A client of the API server, with the user's permissions. */
export class Cluster implements Disposable {
  readonly client: KubeClient;
  /** Namespace of the kubeconfig's context. */
  readonly namespace: string;
  readonly #config: KubeConfig;
  readonly #resources: ResourceApi;

  constructor(config: KubeConfig) {
    this.client = new KubeClient(config, { clock: systemClock, userAgent: 'netdra/tools' });
    this.namespace = config.getContextObject(config.getCurrentContext())?.namespace ?? 'default';
    this.#config = config;
    this.#resources = new ResourceApi(this.client);
  }

  /**
   * Lists objects of resource.k8s.io.
   * @param path path below the API version: `resourceslices`
   * @throws KubeError, NetdraError `list-forbidden`
   */
  async listResources<T extends object>(path: string, query: Record<string, string> = {}): Promise<T[]> {
    return await this.#listed(path, (page) => this.#resources.list<T>({ path, query: { ...query, ...page } }));
  }

  /** Lists DeviceTaintRules; empty if the cluster does not serve them or the user may not list them. @throws KubeError */
  async listTaintRules(): Promise<DeviceTaintRule[]> {
    return await orNone(listAll((query) => this.#resources.list({ path: 'devicetaintrules', query })));
  }

  /** Lists pods of a namespace. @throws KubeError, NetdraError `list-forbidden` */
  async listPods<T>(namespace: string, query: Record<string, string>): Promise<T[]> {
    const request = { method: 'GET', path: `/api/v1/namespaces/${namespace}/pods` } as const;
    return await this.#listed(`pods of namespace ${namespace}`, (page) =>
      this.client.request<KubeList<T>>({ ...request, query: { ...query, ...page } }),
    );
  }

  /**
   * Lists NodeNetworkDevices. Returns none if the cluster does not serve them or the user may not list them. @throws KubeError
   */
  async listViews(): Promise<ListedView[]> {
    return await this.#listOwn('nodenetworkdevices');
  }

  /**
   * Lists NetworkDevicePolicies. Returns none if the cluster does not serve them or the user may not list them. @throws
   * KubeError
   */
  async listPolicies(): Promise<NetworkDevicePolicy[]> {
    return await this.#listOwn('networkdevicepolicies');
  }

  async #listOwn<T>(plural: string): Promise<T[]> {
    const request = { method: 'GET', path: `/apis/netdra.dev/v1alpha1/${plural}` } as const;
    return await orNone(listAll((query) => this.client.request<KubeList<T>>({ ...request, query })));
  }

  /** Reads a claim. @throws KubeError */
  async readClaim(namespace: string, name: string): Promise<ResourceClaim> {
    return await this.#resources.readClaim(namespace, name);
  }

  /** Reads the log of the driver's container. @throws KubeError */
  async readLog({ namespace, name, container }: DriverPod, query: Record<string, string>): Promise<string> {
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/log`;
    return await this.client.requestText({ method: 'GET', path, query: { container, ...query } });
  }

  /** Runs a command in the driver's container. @throws NetdraError `exec-failed` */
  async exec({ namespace, name, container }: DriverPod, command: string[]): Promise<ExecResult> {
    // Imported lazily, since the modules that it imports are large.
    const { execInPod } = await import('./pod-exec.ts');
    return await execInPod(this.#config, { namespace, pod: name, container }, command);
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
        hint: 'an administrator can bind the ClusterRole netdra-viewer of the chart, and for pods the Role of the same name in the namespace of the driver (--driver-namespace)',
      });
    }
  }
}

/** Returns the list, or an empty one if the cluster does not serve it or the user may not read it. @throws KubeError */
async function orNone<T>(listing: Promise<T[]>): Promise<T[]> {
  try {
    return await listing;
  } catch (error) {
    if (!isKubeError(error, 'api-unserved', 'api-forbidden')) throw error;
    return [];
  }
}

/**
 * Opens the cluster as kubectl does.
 * @throws NetdraError `kubeconfig-missing`, `kubeconfig-unusable`
 */
export async function openCluster({ kubeconfig, context }: ClusterOptions): Promise<Cluster> {
  const usual = join(homedir(), '.kube/config');
  // An empty variable counts as unset, as in kubectl.
  const path = kubeconfig || (existsSync(usual) ? usual : undefined);
  const isInPod = path === undefined && context === undefined && hasServiceAccount();
  if (path === undefined && !isInPod) {
    throw new NetdraError('kubeconfig-missing', `no API server is known: there is no ${usual}`, {
      hint: 'give --kubeconfig, or KUBECONFIG in the environment',
    });
  }
  // Imported lazily: loading this module takes longer than the rest of the command.
  const { loadKubeConfig, loadPodConfig } = await import('../../framework/kube/kube-config.ts');
  return new Cluster(path === undefined ? loadPodConfig() : loadKubeConfig(path, context));
}
