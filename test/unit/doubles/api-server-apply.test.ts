import {
  ApiException,
  KubeConfig,
  PatchStrategy,
  ResourceV1Api,
  type ResourceV1ResourceClaim,
  setHeaderOptions,
  type V1AllocatedDeviceStatus,
  type V1Status,
} from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiServer } from '../../doubles/api-server.ts';
import { buildClaim, testDriver } from '../../doubles/objects.ts';

const where = { namespace: 'default', name: 'c' };
const pool = 'node-1';

let server: ApiServer;
let api: ResourceV1Api;

beforeEach(async () => {
  server = await ApiServer.start();
  const config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
  api = config.makeApiClient(ResourceV1Api);
  const devices = ['vf-0', 'vf-1', { device: 'other-0', driver: 'other.example', pool }];
  server.create(buildClaim('c', { requests: [{ name: 'r', devices }] }));
});
afterEach(() => server[Symbol.asyncDispose]());

function applyDevices(
  fieldManager: string,
  devices: Partial<V1AllocatedDeviceStatus>[] | undefined,
  force?: boolean,
): Promise<ResourceV1ResourceClaim> {
  const status = devices === undefined ? {} : { devices };
  const body = { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata: { name: 'c' }, status };
  const options = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);
  const query = { fieldManager, ...(force === undefined ? {} : { force }) };
  return api.patchNamespacedResourceClaimStatus({ ...where, body, ...query }, options);
}

async function refusalOf(call: Promise<unknown>): Promise<V1Status> {
  const error: unknown = await call.then(() => new Error('the call went through')).catch((reason) => reason);
  if (!(error instanceof ApiException)) throw error;
  return JSON.parse(error.body as string) as V1Status;
}

function device(name: string, more: Partial<V1AllocatedDeviceStatus> = {}): Partial<V1AllocatedDeviceStatus> {
  return { driver: testDriver, pool, device: name, ...more };
}

function condition(type: string, status: 'True' | 'False') {
  return { type, status, reason: 'Tested', message: '', lastTransitionTime: new Date('2026-01-01T00:00:00Z') };
}

const names = (claim: ResourceV1ResourceClaim) => claim.status?.devices?.map((entry) => entry.device);

describe('server-side apply of status.devices', () => {
  it('merges entries of several drivers by driver, pool and device', async () => {
    await applyDevices('netdra', [device('vf-0', { networkData: { interfaceName: 'net1', ips: ['10.0.0.2/24'] } })]);
    const other = { driver: 'other.example', pool, device: 'other-0', data: { a: 1 } };
    const both = await applyDevices('other', [other]);
    expect(names(both)).toEqual(['vf-0', 'other-0']);
    expect(both.status?.allocation?.devices?.results).toHaveLength(3);
    const changed = await applyDevices('netdra', [device('vf-0', { networkData: { interfaceName: 'net2' } })]);
    expect(changed.status?.devices).toEqual([device('vf-0', { networkData: { interfaceName: 'net2' } }), other]);
  });

  it('takes away what the manager no longer applies, and only that', async () => {
    await applyDevices('netdra', [device('vf-0'), device('vf-1')]);
    await applyDevices('other', [{ driver: 'other.example', pool, device: 'other-0' }]);
    expect(names(await applyDevices('netdra', [device('vf-1')]))).toEqual(['vf-1', 'other-0']);
    expect(names(await applyDevices('netdra', undefined))).toEqual(['other-0']);
    expect((await applyDevices('other', undefined)).status?.devices).toBeUndefined();
  });

  it('merges conditions by type', async () => {
    await applyDevices('netdra', [device('vf-0', { conditions: [condition('Ready', 'False')] })]);
    await applyDevices('monitor', [device('vf-0', { conditions: [condition('LinkUp', 'True')] })]);
    const claim = await applyDevices('netdra', [device('vf-0', { conditions: [condition('Ready', 'True')] })]);
    expect(claim.status?.devices?.[0]?.conditions).toEqual([condition('Ready', 'True'), condition('LinkUp', 'True')]);
    const less = await applyDevices('monitor', [device('vf-0')]);
    expect(less.status?.devices?.[0]?.conditions).toEqual([condition('Ready', 'True')]);
  });

  it('refuses to change what another manager applied, unless forced', async () => {
    await applyDevices('netdra', [device('vf-0', { networkData: { interfaceName: 'net1' } })]);
    const intruder = [device('vf-0', { networkData: { interfaceName: 'eth9' } })];
    const refused = await refusalOf(applyDevices('intruder', intruder));
    expect(refused).toMatchObject({ code: 409, reason: 'Conflict' });
    expect(refused.details?.causes).toEqual([
      {
        reason: 'FieldManagerConflict',
        message: 'conflict with "netdra" using resource.k8s.io/v1',
        field: `.status.devices[device="vf-0",driver="${testDriver}",pool="node-1"].networkData.interfaceName`,
      },
    ]);
    const forced = await applyDevices('intruder', intruder, true);
    expect(forced.status?.devices?.[0]?.networkData?.interfaceName).toBe('eth9');
    // The field has changed hands: now the first one is the one in conflict.
    const mine = [device('vf-0', { networkData: { interfaceName: 'net1' } })];
    expect(await refusalOf(applyDevices('netdra', mine))).toMatchObject({ code: 409 });
  });

  it('lets two managers share a value on which they agree', async () => {
    const same = [device('vf-0', { networkData: { hardwareAddress: '02:00:00:00:00:01' } })];
    await applyDevices('one', same);
    await applyDevices('two', same);
    const claim = await applyDevices('one', undefined);
    expect(claim.status?.devices).toEqual(same);
  });

  it('counts a plain update as a manager of its own', async () => {
    const claim = await api.readNamespacedResourceClaim(where);
    const devices = [{ driver: testDriver, pool, device: 'vf-0', data: { by: 'update' } }];
    const body = { ...claim, status: { ...claim.status, devices } };
    await api.replaceNamespacedResourceClaimStatus({ ...where, body, fieldManager: 'netdra' });
    const refused = await refusalOf(applyDevices('netdra', [device('vf-0', { data: { by: 'apply' } })]));
    expect(refused.details?.causes?.[0]?.field).toMatch(/\.data$/);
  });

  it('keeps the keys of an entry in which others own something', async () => {
    await applyDevices('netdra', [device('vf-0', { networkData: { interfaceName: 'net1' } })]);
    const claim = await api.readNamespacedResourceClaim(where);
    const [entry] = claim.status?.devices ?? [];
    if (entry !== undefined) entry.data = { added: true };
    await api.replaceNamespacedResourceClaimStatus({ ...where, body: claim, fieldManager: 'editor' });
    const left = await applyDevices('netdra', undefined);
    expect(left.status?.devices).toEqual([device('vf-0', { data: { added: true } })]);
  });

  it('tells apart shares of one device', async () => {
    const shares = ['a', 'b'].map((shareID) => ({ device: 'shared', shareID }));
    server.create(buildClaim('s', { requests: [{ name: 'r', devices: shares }] }));
    const body = (devices: object[]) => ({
      apiVersion: 'resource.k8s.io/v1',
      kind: 'ResourceClaim',
      status: { devices },
    });
    const options = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);
    for (const shareID of ['a', 'b']) {
      const request = {
        namespace: 'default',
        name: 's',
        fieldManager: shareID,
        body: body([device('shared', { shareID })]),
      };
      await api.patchNamespacedResourceClaimStatus(request, options);
    }
    const claim = server.get<ResourceV1ResourceClaim>('ResourceClaim', 's');
    expect(claim?.status?.devices?.map(({ shareID }) => shareID)).toEqual(['a', 'b']);
  });

  it('gives no new version for applying the same again', async () => {
    const first = await applyDevices('netdra', [device('vf-0', { networkData: { ips: ['10.0.0.2/24'] } })]);
    const again = await applyDevices('netdra', [device('vf-0', { networkData: { ips: ['10.0.0.2/24'] } })]);
    expect(again.metadata?.resourceVersion).toBe(first.metadata?.resourceVersion);
  });

  it('records who owns what', async () => {
    await applyDevices('netdra', [device('vf-0', { networkData: { interfaceName: 'net1' } })]);
    const entry = server.get('ResourceClaim', 'c')?.metadata.managedFields?.find(({ manager }) => manager === 'netdra');
    const key = `k:{"device":"vf-0","driver":"${testDriver}","pool":"node-1"}`;
    const fields = {
      '.': {},
      'f:device': {},
      'f:driver': {},
      'f:pool': {},
      'f:networkData': { 'f:interfaceName': {} },
    };
    expect(entry).toMatchObject({ operation: 'Apply', subresource: 'status', fieldsType: 'FieldsV1' });
    expect(entry?.fieldsV1).toEqual({ 'f:status': { 'f:devices': { [key]: fields } } });
  });

  it('needs a field manager, an existing object and the right kind', async () => {
    expect(await refusalOf(applyDevices('', []))).toMatchObject({ code: 422 });
    const options = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);
    const body = { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', status: {} };
    const elsewhere = api.patchNamespacedResourceClaimStatus(
      { ...where, name: 'none', body, fieldManager: 'm' },
      options,
    );
    expect(await refusalOf(elsewhere)).toMatchObject({ code: 404 });
    const wrong = { ...body, kind: 'Pod' };
    const mistaken = api.patchNamespacedResourceClaimStatus({ ...where, body: wrong, fieldManager: 'm' }, options);
    expect(await refusalOf(mistaken)).toMatchObject({ code: 400 });
    const nameless = { status: {} };
    const incomplete = api.patchNamespacedResourceClaimStatus({ ...where, body: nameless, fieldManager: 'm' }, options);
    expect(await refusalOf(incomplete)).toMatchObject({ code: 400 });
  });

  it('honours a UID in the body', async () => {
    const options = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);
    const body = { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata: { uid: 'other' }, status: {} };
    const refused = await refusalOf(
      api.patchNamespacedResourceClaimStatus({ ...where, body, fieldManager: 'm' }, options),
    );
    expect(refused).toMatchObject({ code: 409, reason: 'Conflict' });
  });

  it('refuses a list that names an entry twice', async () => {
    const refused = await refusalOf(applyDevices('netdra', [device('vf-0'), device('vf-0')]));
    expect(refused.code).toBe(500);
    expect(refused.message).toContain('duplicate entries for key');
  });

  it('creates an object that is not there', async () => {
    const body = {
      apiVersion: 'resource.k8s.io/v1',
      kind: 'ResourceSlice',
      metadata: { labels: { a: 'b' } },
      spec: { driver: testDriver, nodeName: 'n', pool: { name: 'n', generation: 1, resourceSliceCount: 1 } },
    };
    const options = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);
    const made = await api.patchResourceSlice({ name: 's', body, fieldManager: 'netdra' }, options);
    expect(made.metadata).toMatchObject({ name: 's', generation: 1, labels: { a: 'b' } });
    const changed = { ...body, metadata: {}, spec: { ...body.spec, pool: { ...body.spec.pool, generation: 2 } } };
    const next = await api.patchResourceSlice({ name: 's', body: changed, fieldManager: 'netdra' }, options);
    expect(next.metadata).toMatchObject({ generation: 2 });
    expect(next.metadata?.labels).toBeUndefined();
  });
});
