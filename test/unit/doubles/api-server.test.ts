import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  ApiException,
  CoreV1Api,
  CustomObjectsApi,
  KubeConfig,
  KubernetesObjectApi,
  PatchStrategy,
  ResourceV1Api,
  setHeaderOptions,
  type V1Pod,
  type V1ResourceSlice,
  type V1Status,
} from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiServer } from '../../doubles/api-server.ts';
import { buildClaim, buildNode, buildPod, generateClaim, testDriver } from '../../doubles/objects.ts';

let server: ApiServer;
let config: KubeConfig;
let core: CoreV1Api;
let resource: ResourceV1Api;

beforeEach(async () => {
  server = await ApiServer.start();
  config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
  core = config.makeApiClient(CoreV1Api);
  resource = config.makeApiClient(ResourceV1Api);
});
afterEach(() => server[Symbol.asyncDispose]());

/** The `Status` that a call was refused with. */
async function refusalOf(call: Promise<unknown>): Promise<V1Status> {
  const error = await call.then(
    () => new Error('the call went through'),
    (reason: unknown) => reason,
  );
  if (!(error instanceof ApiException)) throw error;
  return JSON.parse(error.body as string) as V1Status;
}

function buildSlice(name: string, more: Partial<V1ResourceSlice['spec']> = {}): V1ResourceSlice {
  return {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceSlice',
    metadata: { name },
    spec: {
      driver: testDriver,
      nodeName: 'node-1',
      pool: { name: 'node-1', generation: 1, resourceSliceCount: 1 },
      devices: [{ name: 'vf-0', attributes: { mac: { string: '02:00:00:00:00:01' } } }],
      ...more,
    },
  };
}

describe('ApiServer', () => {
  it('is found through the kubeconfig that it writes', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'api-'));
    try {
      await server.writeKubeconfig(join(dir, 'config'));
      const fromFile = new KubeConfig();
      fromFile.loadFromFile(join(dir, 'config'));
      server.create(buildNode('node-1'));
      expect((await fromFile.makeApiClient(CoreV1Api).readNode({ name: 'node-1' })).metadata?.name).toBe('node-1');
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  it('creates an object with what the server adds to it', async () => {
    const created = await resource.createResourceSlice({ body: buildSlice('s') });
    expect(created.metadata).toMatchObject({ name: 's', generation: 1 });
    expect(created.metadata?.uid).toMatch(/^[0-9a-f-]{36}$/);
    expect(Number(created.metadata?.resourceVersion)).toBeGreaterThan(0);
    expect(Math.abs((created.metadata?.creationTimestamp?.getTime() ?? 0) - Date.now())).toBeLessThan(5000);
    expect(await resource.readResourceSlice({ name: 's' })).toEqual(created);
  });

  it('makes names from generateName', async () => {
    const { metadata: _, ...slice } = buildSlice('unused');
    const body = { ...slice, metadata: { generateName: '00000-driver-' } };
    const names = [await resource.createResourceSlice({ body }), await resource.createResourceSlice({ body })];
    expect(new Set(names.map((made) => made.metadata?.name)).size).toBe(2);
    expect(names[0]?.metadata?.name).toMatch(/^00000-driver-[a-z0-9]{5}$/);
  });

  it('answers 404 and 409 AlreadyExists with a Status', async () => {
    expect(await refusalOf(resource.readNamespacedResourceClaim({ namespace: 'default', name: 'none' }))).toMatchObject(
      {
        kind: 'Status',
        code: 404,
        reason: 'NotFound',
        message: 'resourceclaims.resource.k8s.io "none" not found',
        details: { name: 'none', group: 'resource.k8s.io', kind: 'resourceclaims' },
      },
    );
    server.create(buildSlice('s'));
    expect(await refusalOf(resource.createResourceSlice({ body: buildSlice('s') }))).toMatchObject({
      code: 409,
      reason: 'AlreadyExists',
    });
  });

  it('counts generations of the spec and refuses a stale update', async () => {
    const first = await resource.createResourceSlice({ body: buildSlice('s') });
    const changed = structuredClone(first);
    changed.spec.pool.generation = 2;
    const second = await resource.replaceResourceSlice({ name: 's', body: changed });
    expect(second.metadata?.generation).toBe(2);
    expect(await refusalOf(resource.replaceResourceSlice({ name: 's', body: changed }))).toMatchObject({
      code: 409,
      reason: 'Conflict',
    });
    changed.metadata = { name: 's', labels: { a: 'b' } };
    const third = await resource.replaceResourceSlice({ name: 's', body: changed });
    expect(third.metadata).toMatchObject({ generation: 2, labels: { a: 'b' }, uid: first.metadata?.uid });
  });

  it('gives no new version to an update that changes nothing', async () => {
    const first = await resource.createResourceSlice({ body: buildSlice('s') });
    const same = await resource.replaceResourceSlice({ name: 's', body: first });
    expect(same.metadata?.resourceVersion).toBe(first.metadata?.resourceVersion);
  });

  it('selects by fields and labels, in a namespace and over all', async () => {
    server.create(buildSlice('a'));
    server.create(buildSlice('b', { nodeName: 'node-2', pool: { name: 'p2', generation: 1, resourceSliceCount: 1 } }));
    server.create(buildSlice('c', { driver: 'other.example' }));
    const names = async (fieldSelector: string) =>
      (await resource.listResourceSlice({ fieldSelector })).items.map((item) => item.metadata?.name);
    expect(await names(`spec.driver=${testDriver}`)).toEqual(['a', 'b']);
    expect(await names(`spec.driver=${testDriver},spec.nodeName=node-1`)).toEqual(['a']);
    expect(await names('spec.pool.name=p2')).toEqual(['b']);
    expect(await names('metadata.name!=a')).toEqual(['b', 'c']);
    expect(await refusalOf(resource.listResourceSlice({ fieldSelector: 'spec.color=red' }))).toMatchObject({
      code: 400,
      message: 'field label not supported: spec.color',
    });

    server.create(buildPod('p1', { labels: { app: 'dpdk', tier: 'a' } }));
    server.create(buildPod('p2', { namespace: 'other', labels: { app: 'dpdk' } }));
    const pods = (items: V1Pod[]) => items.map((pod) => pod.metadata?.name);
    expect(pods((await core.listPodForAllNamespaces({ fieldSelector: 'spec.nodeName=node-1' })).items)).toEqual([
      'p1',
      'p2',
    ]);
    expect(pods((await core.listNamespacedPod({ namespace: 'other' })).items)).toEqual(['p2']);
    for (const [labelSelector, expected] of [
      ['app=dpdk', ['p1', 'p2']],
      ['app=dpdk,tier', ['p1']],
      ['!tier', ['p2']],
      ['tier notin (b,c)', ['p1', 'p2']],
      ['tier in (a)', ['p1']],
    ] as const) {
      expect(pods((await core.listPodForAllNamespaces({ labelSelector })).items)).toEqual(expected);
    }
  });

  it('pages with limit and continue', async () => {
    for (const name of ['a', 'b', 'c']) server.create(buildNode(name));
    const first = await core.listNode({ limit: 2 });
    expect(first.items.map((node) => node.metadata?.name)).toEqual(['a', 'b']);
    expect(first.metadata).toMatchObject({ remainingItemCount: 1 });
    const rest = await core.listNode({ limit: 2, _continue: first.metadata?._continue ?? '' });
    expect(rest.items.map((node) => node.metadata?.name)).toEqual(['c']);
    expect(rest.metadata?._continue).toBeUndefined();
    server.compact();
    expect(await refusalOf(core.listNode({ _continue: first.metadata?._continue ?? '' }))).toMatchObject({ code: 410 });
  });

  it('leaves kind and version out of the items of a list, but not for custom resources', async () => {
    server.create(buildNode('n'));
    const nodes = (await (await fetch(`${server.url}/api/v1/nodes`)).json()) as { items: object[] };
    expect(nodes.items[0]).not.toHaveProperty('kind');
    const custom = config.makeApiClient(CustomObjectsApi);
    const where = {
      group: 'k8s.cni.cncf.io',
      version: 'v1',
      namespace: 'default',
      plural: 'network-attachment-definitions',
    };
    const body = {
      apiVersion: 'k8s.cni.cncf.io/v1',
      kind: 'NetworkAttachmentDefinition',
      metadata: { name: 'net' },
      spec: { config: '{"cniVersion":"1.0.0","type":"sriov"}' },
    };
    await custom.createNamespacedCustomObject({ ...where, body });
    expect((await custom.getNamespacedCustomObject({ ...where, name: 'net' })).spec).toEqual(body.spec);
    expect((await custom.listNamespacedCustomObject(where)).items).toMatchObject([
      { kind: 'NetworkAttachmentDefinition' },
    ]);
  });

  it('deletes under preconditions', async () => {
    const { metadata } = server.create(buildSlice('s'));
    const wrongUid = resource.deleteResourceSlice({ name: 's', body: { preconditions: { uid: 'other' } } });
    expect(await refusalOf(wrongUid)).toMatchObject({ code: 409, reason: 'Conflict' });
    const stale = { uid: metadata.uid, resourceVersion: '1' };
    expect(await refusalOf(resource.deleteResourceSlice({ name: 's', body: { preconditions: stale } }))).toMatchObject({
      code: 409,
    });
    const { uid, resourceVersion } = metadata;
    await resource.deleteResourceSlice({ name: 's', body: { preconditions: { uid, resourceVersion } } });
    expect(server.objects('ResourceSlice')).toEqual([]);
    expect(await refusalOf(resource.deleteResourceSlice({ name: 's' }))).toMatchObject({ code: 404 });
  });

  it('deletes the selected part of a collection', async () => {
    server.create(buildSlice('a'));
    server.create(buildSlice('b', { driver: 'other.example' }));
    server.create(buildSlice('c', { nodeName: 'node-2' }));
    await resource.deleteCollectionResourceSlice({ fieldSelector: `spec.nodeName=node-1,spec.driver=${testDriver}` });
    expect(server.objects<V1ResourceSlice>('ResourceSlice').map((slice) => slice.metadata?.name)).toEqual(['b', 'c']);
  });

  it('lets a pod on a node linger for its grace period, and an object with finalizers until they are gone', async () => {
    server.create(buildPod('p'));
    const lingering = await core.deleteNamespacedPod({ namespace: 'default', name: 'p' });
    expect(lingering.metadata).toMatchObject({ deletionGracePeriodSeconds: 30 });
    expect(server.get('Pod', 'p')).toBeDefined();
    await core.deleteNamespacedPod({ namespace: 'default', name: 'p', gracePeriodSeconds: 0 });
    expect(server.get('Pod', 'p')).toBeUndefined();

    const claim = buildClaim('c', { requests: [{ name: 'r', devices: ['vf-0'] }] });
    Object.assign(claim.metadata, { finalizers: ['resource.kubernetes.io/delete-protection'] });
    server.create(claim);
    await resource.deleteNamespacedResourceClaim({ namespace: 'default', name: 'c' });
    expect(server.get('ResourceClaim', 'c')?.metadata.deletionTimestamp).toBeDefined();
    server.edit('ResourceClaim', 'c', (object) => {
      object.metadata.finalizers = [];
    });
    expect(server.get('ResourceClaim', 'c')).toBeUndefined();
  });

  it('keeps status and spec apart', async () => {
    const claim = buildClaim('c', { requests: [{ name: 'r', devices: ['vf-0'] }] });
    const created = await resource.createNamespacedResourceClaim({ namespace: 'default', body: claim });
    expect(created.status).toBeUndefined();
    expect(created.metadata?.uid).not.toBe(claim.metadata.uid);
    const { name, namespace } = claim.metadata;
    const withStatus = { ...created, status: claim.status ?? {} };
    const ignored = await resource.replaceNamespacedResourceClaim({ name, namespace, body: withStatus });
    expect(ignored.status).toBeUndefined();
    const stored = await resource.replaceNamespacedResourceClaimStatus({ name, namespace, body: withStatus });
    expect(stored.status?.allocation?.devices?.results?.[0]?.device).toBe('vf-0');
    const labelled = structuredClone(stored);
    labelled.metadata = { ...stored.metadata, labels: { no: 'way' } };
    const again = await resource.replaceNamespacedResourceClaimStatus({ name, namespace, body: labelled });
    expect(again.metadata?.labels).toBeUndefined();
  });

  it('takes merge patches and JSON patches', async () => {
    server.create(buildNode('n', { labels: { old: '1' } }));
    const merge = setHeaderOptions('Content-Type', PatchStrategy.MergePatch);
    const merged = await core.patchNode(
      { name: 'n', body: { metadata: { labels: { old: null, fresh: '2' } } } },
      merge,
    );
    expect(merged.metadata?.labels).toEqual({ 'kubernetes.io/hostname': 'n', fresh: '2' });
    const json = setHeaderOptions('Content-Type', PatchStrategy.JsonPatch);
    const body = [
      { op: 'test', path: '/metadata/labels/fresh', value: '2' },
      { op: 'replace', path: '/metadata/labels/kubernetes.io~1hostname', value: 'm' },
      { op: 'remove', path: '/metadata/labels/fresh' },
      { op: 'add', path: '/metadata/annotations', value: { a: 'b' } },
    ];
    const patched = await core.patchNode({ name: 'n', body }, json);
    expect(patched.metadata).toMatchObject({ labels: { 'kubernetes.io/hostname': 'm' }, annotations: { a: 'b' } });
    expect(await refusalOf(core.patchNode({ name: 'n', body: body.slice(0, 1) }, json))).toMatchObject({ code: 422 });
    const stale = { metadata: { resourceVersion: '1', labels: { x: 'y' } } };
    expect(await refusalOf(core.patchNode({ name: 'n', body: stale }, merge))).toMatchObject({ code: 409 });
  });

  it('refuses patches in a format it does not know', async () => {
    server.create(buildNode('n'));
    const options = setHeaderOptions('Content-Type', PatchStrategy.StrategicMergePatch);
    expect(await refusalOf(core.patchNode({ name: 'n', body: {} }, options))).toMatchObject({ code: 415 });
  });

  it('takes events about a pod, and in namespace default those about a node', async () => {
    const pod = server.create(buildPod('p', { namespace: 'apps' }));
    const about = { kind: 'Pod', namespace: 'apps', name: 'p', uid: pod.metadata.uid };
    const event = {
      metadata: { generateName: 'p.' },
      involvedObject: about,
      reason: 'VFAttached',
      message: 'ok',
      type: 'Normal',
    };
    await core.createNamespacedEvent({ namespace: 'apps', body: event });
    const { items } = await core.listNamespacedEvent({ namespace: 'apps', fieldSelector: 'involvedObject.name=p' });
    expect(items).toMatchObject([{ reason: 'VFAttached' }]);
    const wrong = core.createNamespacedEvent({
      namespace: 'kube-system',
      body: { ...event, involvedObject: { kind: 'Node', name: 'n' } },
    });
    expect(await refusalOf(wrong)).toMatchObject({
      code: 422,
      details: { causes: [{ field: 'involvedObject.namespace' }] },
    });
  });

  it('is understood by the client for any object, which asks for the resources first', async () => {
    const any = KubernetesObjectApi.makeApiClient(config);
    await any.create(buildSlice('s') as never);
    const read = await any.read({ apiVersion: 'resource.k8s.io/v1', kind: 'ResourceSlice', metadata: { name: 's' } });
    expect(read.metadata?.name).toBe('s');
  });

  it('does nothing on a dry run', async () => {
    const made = await resource.createResourceSlice({ body: buildSlice('s'), dryRun: 'All' });
    expect(made.metadata?.uid).toBeDefined();
    expect(server.objects('ResourceSlice')).toEqual([]);
  });

  it('demands its token when it has one', async () => {
    await using guarded = await ApiServer.start({ token: 'secret' });
    expect((await fetch(`${guarded.url}/api/v1/nodes`)).status).toBe(401);
    const allowed = new KubeConfig();
    allowed.loadFromString(guarded.kubeconfig());
    expect((await allowed.makeApiClient(CoreV1Api).listNode()).items).toEqual([]);
  });

  it('collects the garbage of a pod that is gone', () => {
    const pod = buildPod('p', { resourceClaims: [{ name: 'net', resourceClaimTemplateName: 't' }] });
    const claim = generateClaim(pod, 'net', { requests: [{ name: 'r', devices: ['vf-0'] }] });
    server.create(pod);
    server.create(claim);
    expect(server.collectGarbage()).toBe(0);
    server.delete('Pod', 'p');
    expect(server.collectGarbage()).toBe(1);
    expect(server.objects('ResourceClaim')).toEqual([]);
  });
});
