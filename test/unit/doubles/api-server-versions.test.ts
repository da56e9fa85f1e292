import {
  ApiException,
  KubeConfig,
  ResourceV1Api,
  ResourceV1beta1Api,
  ResourceV1beta2Api,
} from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { ApiServer, type ApiServerOptions } from '../../doubles/api-server.ts';
import { buildClaim } from '../../doubles/objects.ts';

async function startWith(options: ApiServerOptions) {
  const server = await ApiServer.start(options);
  const config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
  return {
    server,
    v1: config.makeApiClient(ResourceV1Api),
    v1beta2: config.makeApiClient(ResourceV1beta2Api),
    v1beta1: config.makeApiClient(ResourceV1beta1Api),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

describe('versions of resource.k8s.io', () => {
  it('serves one claim in all versions, each in its own shape', async () => {
    await using api = await startWith({});
    api.server.create(buildClaim('c', { requests: [{ name: 'r', devices: ['vf-0'] }] }));
    const where = { namespace: 'default', name: 'c' };
    expect((await api.v1.readNamespacedResourceClaim(where)).spec.devices?.requests?.[0]?.exactly?.count).toBe(1);
    expect((await api.v1beta2.readNamespacedResourceClaim(where)).spec.devices?.requests?.[0]?.exactly?.count).toBe(1);
    const old = await api.v1beta1.readNamespacedResourceClaim(where);
    expect(old.apiVersion).toBe('resource.k8s.io/v1beta1');
    expect(old.spec.devices?.requests?.[0]).toMatchObject({ name: 'r', count: 1 });
    expect(old.status?.allocation?.devices?.results?.[0]?.device).toBe('vf-0');
  });

  it('takes a v1beta1 slice and gives it back as v1', async () => {
    await using api = await startWith({});
    const body = {
      metadata: { name: 's' },
      spec: {
        driver: 'a.example',
        nodeName: 'n',
        pool: { name: 'n', generation: 1, resourceSliceCount: 1 },
        devices: [{ name: 'vf-0', basic: { attributes: { mtu: { _int: 9000 } } } }],
      },
    };
    const made = await api.v1beta1.createResourceSlice({ body });
    expect(made.spec.devices?.[0]?.basic?.attributes?.mtu?._int).toBe(9000);
    const [device] = (await api.v1.readResourceSlice({ name: 's' })).spec.devices ?? [];
    expect(device).toMatchObject({ name: 'vf-0', attributes: { mtu: { _int: 9000 } } });
  });

  it('answers 404 in plain text for a version that is not served, until it is', async () => {
    await using api = await startWith({ draVersions: ['v1beta1'] });
    const refused = await api.v1.listResourceSlice().catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(ApiException);
    expect(refused).toMatchObject({ code: 404, body: '404 page not found\n' });
    expect((await api.v1beta1.listResourceSlice()).items).toEqual([]);
    const groups = (await (await fetch(`${api.server.url}/apis`)).json()) as {
      groups: { name: string; versions: object[] }[];
    };
    expect(groups.groups.find(({ name }) => name === 'resource.k8s.io')?.versions).toHaveLength(1);
    api.server.serveDraVersions(['v1']);
    expect((await api.v1.listResourceSlice()).items).toEqual([]);
  });
});
