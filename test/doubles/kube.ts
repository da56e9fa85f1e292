import { KubeConfig } from '@kubernetes/client-node';
import { KubeClient, ResourceApi } from '../../src/framework/kube/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import type { ApiServer } from './api-server.ts';

export function kubeConfigOf(api: ApiServer): KubeConfig {
  const config = new KubeConfig();
  config.loadFromString(api.kubeconfig());
  return config;
}

/** Clients of the API server double. Disposing closes their connections. */
export function openKube(api: ApiServer): { client: KubeClient; resources: ResourceApi } & Disposable {
  const client = new KubeClient(kubeConfigOf(api), { clock: systemClock, userAgent: 'netdra/test' });
  return { client, resources: new ResourceApi(client), [Symbol.dispose]: () => client[Symbol.dispose]() };
}
