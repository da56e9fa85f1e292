import {
  ApiException,
  KubeConfig,
  ResourceV1Api,
  type V1AllocatedDeviceStatus,
  type V1Device,
  type V1ResourceSliceSpec,
  type V1Status,
} from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiServer } from '../../doubles/api-server.ts';
import { buildClaim, testDriver } from '../../doubles/objects.ts';

const where = { namespace: 'default', name: 'c' };

let server: ApiServer;
let api: ResourceV1Api;

beforeEach(async () => {
  server = await ApiServer.start();
  const config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
  api = config.makeApiClient(ResourceV1Api);
});
afterEach(() => server[Symbol.asyncDispose]());

/** Fields that a call was refused for with 422; empty when it went through. */
async function refusedFields(call: Promise<unknown>): Promise<(string | undefined)[]> {
  const error: unknown = await call.then(() => undefined).catch((reason) => reason);
  if (error === undefined) return [];
  if (!(error instanceof ApiException) || error.code !== 422) throw error;
  const status = JSON.parse(error.body as string) as V1Status;
  expect(status.reason).toBe('Invalid');
  return status.details?.causes?.map(({ field }) => field) ?? [];
}

async function putDevices(devices: Partial<V1AllocatedDeviceStatus>[]): Promise<(string | undefined)[]> {
  const claim = await api.readNamespacedResourceClaim(where);
  const body = { ...claim, status: { ...claim.status, devices: devices as V1AllocatedDeviceStatus[] } };
  return await refusedFields(api.replaceNamespacedResourceClaimStatus({ ...where, body }));
}

const vf0 = { driver: testDriver, pool: 'node-1', device: 'vf-0' };
const ready = { type: 'Ready', status: 'True', reason: 'Attached', message: '', lastTransitionTime: new Date() };

describe('validation of claims', () => {
  beforeEach(() => {
    server.create(buildClaim('c', { requests: [{ name: 'r', devices: ['vf-0'] }] }));
  });

  it('takes the status of an allocated device', async () => {
    const networkData = {
      interfaceName: 'net1',
      ips: ['10.0.0.2/24', 'fd00::2/64'],
      hardwareAddress: '02:00:00:00:00:01',
    };
    expect(await putDevices([{ ...vf0, networkData, conditions: [ready], data: { a: 1 } }])).toEqual([]);
  });

  it('refuses the status of a device that is not allocated, with the reason in the message', async () => {
    expect(await putDevices([{ ...vf0, device: 'vf-9' }])).toEqual(['status.devices[0]']);
    const claim = await api.readNamespacedResourceClaim(where);
    const body = { ...claim, status: { ...claim.status, devices: [{ ...vf0, pool: 'other' }] } };
    await expect(api.replaceNamespacedResourceClaimStatus({ ...where, body })).rejects.toThrow(
      /ResourceClaim.resource.k8s.io .*is invalid: status.devices\[0\]: Invalid value: .*must be an allocated device in the claim/,
    );
  });

  it.each([
    ['an IP without prefix length', { networkData: { ips: ['10.0.0.2'] } }, 'networkData.ips[0]'],
    ['an IPv6 address that is not canonical', { networkData: { ips: ['fd00:0::2/64'] } }, 'networkData.ips[0]'],
    ['an IP twice', { networkData: { ips: ['10.0.0.2/24', '10.0.0.2/24'] } }, 'networkData.ips[1]'],
    [
      'too many IPs',
      { networkData: { ips: Array.from({ length: 17 }, (_, i) => `10.0.0.${i}/24`) } },
      'networkData.ips',
    ],
    ['a long hardware address', { networkData: { hardwareAddress: 'a'.repeat(129) } }, 'networkData.hardwareAddress'],
    ['a condition without reason', { conditions: [{ ...ready, reason: '' }] }, 'conditions[0].reason'],
    ['a reason with blanks', { conditions: [{ ...ready, reason: 'not ready' }] }, 'conditions[0].reason'],
    [
      'too many conditions',
      { conditions: Array.from({ length: 9 }, (_, i) => ({ ...ready, type: `T${i}` })) },
      'conditions',
    ],
    ['data that is no object', { data: 'text' }, 'data'],
    ['too much data', { data: { text: 'x'.repeat(10_300) } }, 'data'],
  ])('refuses %s', async (_what, more, field) => {
    expect(await putDevices([{ ...vf0, ...more }])).toEqual([`status.devices[0].${field}`]);
  });

  it('lets only drivers with the permission change status.devices', async () => {
    server.allowDeviceStatus(['other.example']);
    const claim = await api.readNamespacedResourceClaim(where);
    const body = { ...claim, status: { ...claim.status, devices: [vf0] } };
    await expect(api.replaceNamespacedResourceClaimStatus({ ...where, body })).rejects.toThrow(
      /Forbidden: changing status.devices requires resource=.*resourceclaims\/driver.*verb=.*associated-node:update/,
    );
    server.allowDeviceStatus([testDriver]);
    expect(await putDevices([vf0])).toEqual([]);
  });

  it('drops device status when the claim is deallocated', async () => {
    await putDevices([vf0]);
    const claim = await api.readNamespacedResourceClaim(where);
    const { allocation: _, ...status } = claim.status ?? {};
    await api.replaceNamespacedResourceClaimStatus({ ...where, body: { ...claim, status } });
    expect((await api.readNamespacedResourceClaim(where)).status?.devices).toBeUndefined();
  });

  it('refuses a change of the spec and requests without a class or name', async () => {
    const claim = await api.readNamespacedResourceClaim(where);
    const spec = { devices: { requests: [{ name: 'x', exactly: { deviceClassName: 'y' } }] } };
    expect(await refusedFields(api.replaceNamespacedResourceClaim({ ...where, body: { ...claim, spec } }))).toContain(
      'spec',
    );
    const requests = [{ name: '', exactly: { deviceClassName: '' } }];
    const body = { metadata: { name: 'd' }, spec: { devices: { requests } } };
    expect(await refusedFields(api.createNamespacedResourceClaim({ namespace: 'default', body }))).toEqual([
      'spec.devices.requests[0].name',
      'spec.devices.requests[0].exactly.deviceClassName',
    ]);
  });

  it('refuses what a test builds wrong, too', () => {
    const claim = buildClaim('d', { requests: [{ name: 'r', devices: ['Not A Label'] }] });
    expect(() => server.create(claim)).toThrow(/status.allocation.devices.results\[0\].device: Invalid value/);
  });
});

describe('validation of slices', () => {
  const taint = { key: 'a.example/broken', effect: 'NoSchedule' };

  function create(more: Partial<V1ResourceSliceSpec>): Promise<(string | undefined)[]> {
    const pool = { name: 'node-1', generation: 1, resourceSliceCount: 1 };
    const body = { metadata: { generateName: 's-' }, spec: { driver: testDriver, nodeName: 'node-1', pool, ...more } };
    return refusedFields(api.createResourceSlice({ body }));
  }

  function devices(count: number, more: Partial<V1Device> = {}): V1Device[] {
    return Array.from({ length: count }, (_, index) => ({ name: `vf-${index}`, ...more }));
  }

  it('takes 128 plain devices, or 64 with advanced features', async () => {
    expect(await create({ devices: devices(128) })).toEqual([]);
    expect(await create({ devices: devices(129) })).toEqual(['spec.devices']);
    expect(await create({ devices: devices(64, { taints: [taint] }) })).toEqual([]);
    expect(await create({ devices: devices(65, { taints: [taint] }) })).toEqual(['spec.devices']);
  });

  it('limits attributes and capacities together', async () => {
    const attributes = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`a${i}`, { bool: true }]));
    const capacity = Object.fromEntries(Array.from({ length: 13 }, (_, i) => [`c${i}`, { value: '1' }]));
    expect(await create({ devices: devices(1, { attributes }) })).toEqual([]);
    expect(await create({ devices: devices(1, { attributes, capacity }) })).toEqual(['spec.devices[0]']);
  });

  it.each<[string, Partial<V1ResourceSliceSpec>, string]>([
    ['no driver', { driver: '' }, 'spec.driver'],
    ['a long driver name', { driver: 'a'.repeat(64) }, 'spec.driver'],
    ['two choices of node', { allNodes: true }, 'spec'],
    [
      'a pool of no slices',
      { pool: { name: 'p', generation: 1, resourceSliceCount: 0 } },
      'spec.pool.resourceSliceCount',
    ],
    ['a device name that is no label', { devices: [{ name: '0000:3b:00.1' }] }, 'spec.devices[0].name'],
    ['a device twice', { devices: [{ name: 'a' }, { name: 'a' }] }, 'spec.devices[1].name'],
    ['devices beside counters', { devices: devices(1), sharedCounters: [{ name: 'c', counters: {} }] }, 'spec'],
    ['an attribute without value', { devices: devices(1, { attributes: { a: {} } }) }, 'spec.devices[0].attributes[a]'],
    [
      'a long text',
      { devices: devices(1, { attributes: { a: { string: 'x'.repeat(65) } } }) },
      'spec.devices[0].attributes[a].string',
    ],
    [
      'a name with a dash',
      { devices: devices(1, { attributes: { 'a-b': { bool: true } } }) },
      'spec.devices[0].attributes',
    ],
    [
      'a version that is none',
      { devices: devices(1, { attributes: { v: { version: '1.2' } } }) },
      'spec.devices[0].attributes[v].version',
    ],
    [
      'an unknown taint effect',
      { devices: devices(1, { taints: [{ ...taint, effect: 'Explode' }] }) },
      'spec.devices[0].taints[0].effect',
    ],
  ])('refuses %s', async (_what, more, field) => {
    expect(await create(more)).toEqual([field]);
  });

  it('does not move a slice to another node, driver or pool', async () => {
    const pool = { name: 'node-1', generation: 1, resourceSliceCount: 1 };
    const made = await api.createResourceSlice({
      body: { metadata: { name: 's' }, spec: { driver: testDriver, nodeName: 'n', pool } },
    });
    const spec = { ...made.spec, nodeName: 'm', driver: 'other.example', pool: { ...pool, name: 'q' } };
    expect(await refusedFields(api.replaceResourceSlice({ name: 's', body: { ...made, spec } }))).toEqual([
      'spec.driver',
      'spec.nodeName',
      'spec.pool.name',
    ]);
  });

  it('dates taints, and drops fields as a test wishes', async () => {
    const dropped = server.admit('ResourceSlice', (slice) => {
      for (const device of (slice.spec as V1ResourceSliceSpec).devices ?? []) delete device.capacity;
    });
    const [device] = devices(1, { taints: [taint], capacity: { rate: { value: '1' } } });
    await create({ devices: device === undefined ? [] : [device] });
    dropped[Symbol.dispose]();
    const { items } = await api.listResourceSlice();
    expect(items[0]?.spec.devices?.[0]?.taints?.[0]?.timeAdded).toBeInstanceOf(Date);
    expect(items[0]?.spec.devices?.[0]?.capacity).toBeUndefined();
  });
});
