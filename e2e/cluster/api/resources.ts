import { beforeAll, describe, expect, it } from 'vitest';
import { type KubeClient, type KubeQuery, type KubeRequest, ResourceApi } from '../../../src/framework/kube/index.ts';
import { type ResourceVersion, resourceVersions } from '../../../src/framework/kube/resource-versions.ts';
import {
  createSliceApi,
  type Device,
  type Pool,
  type ResourceSlice,
  SlicePublisher,
} from '../../../src/framework/resourceslice/index.ts';
import { validatePool } from '../../../src/framework/resourceslice/validate.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { explain } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { devices } from '../../../test/unit/framework/resourceslice/bench.ts';
import { badDevices, fullDevice, sharedCounters } from '../../../test/unit/framework/resourceslice/device-table.ts';
import { isSince, readPrograms } from '../programs.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

const { kubernetesVersion } = readPrograms(process.env);
/**
 * Before 1.36 lists are not allowed as values, taints are limited to 4 and need an effect, and counters must be in the
 * slice of the devices that consume them.
 */
const isNewest = isSince(kubernetesVersion, '1.36');
const taints = [{ key: 'netdra.dev/link-down', effect: 'NoSchedule' as const }];

let cluster: ApiCluster;
let nodes = 0;

/** A client of a cluster that serves one version of resource.k8s.io: requests for others are answered as unknown. */
function serving(client: KubeClient, version: ResourceVersion): KubeClient {
  const others = new RegExp(`/resource\\.k8s\\.io/(?!${version}/)\\w+`);
  const redirect = <T extends KubeQuery>(request: T): T => ({
    ...request,
    path: request.path.replace(others, '/resource.k8s.io/v0'),
  });
  return Object.create(client, {
    request: { value: (request: KubeRequest) => client.request(redirect(request)) },
    watch: { value: (request: KubeQuery) => client.watch(redirect(request)) },
  });
}

/** The driver on its own node, and what it publishes. */
async function openPublisher(version: ResourceVersion = 'v1') {
  const nodeName = `publisher-${++nodes}`;
  const user = await cluster.driverOn(nodeName);
  const client = serving(user.client, version);
  const place = { driver: testDriver, nodeName };
  const errors: Error[] = [];
  const publisher = new SlicePublisher(createSliceApi(client, new ResourceApi(client), place), {
    ...place,
    clock: systemClock,
    logger: new RecordingLogger(),
    onError: (error) => errors.push(error),
  });
  const slices = async () => {
    const path = 'resourceslices';
    const { items } = await cluster.admin.resources.list<ResourceSlice>({ path });
    return items
      .filter(({ spec }) => spec.nodeName === nodeName)
      .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  };
  return {
    nodeName,
    errors,
    slices,
    publish: (pool: Pool) => publisher.publish({ pools: { [nodeName]: pool } }),
    /** Compares with the stored slices again, and waits long enough for a write. @returns the slices */
    async recheck(): Promise<ResourceSlice[]> {
      publisher.recheck();
      await systemClock.sleep(500);
      return await slices();
    },
    [Symbol.asyncDispose]: () => publisher[Symbol.asyncDispose](),
  };
}

const eventually = <T>(what: () => Promise<T>) => expect.poll(what, { timeout: 20_000, interval: 100 });
/** The part of a device that this server supports. */
function known({ consumesCounters = [], attributes = {}, ...device }: Device): Device {
  if (isNewest) return { ...device, attributes, consumesCounters };
  const plain = Object.entries(attributes).filter(([, value]) => !('ints' in value));
  return { ...device, attributes: Object.fromEntries(plain), taints: (device.taints ?? []).slice(0, 4) };
}

/** @param get a cluster with every gate for devices, all versions of resource.k8s.io, and `macAddress` open to claims */
export function describeResources(get: () => ApiCluster): void {
  beforeAll(() => {
    cluster = get();
  });

  describe('ResourceSlices published to a real API server', () => {
    it('are stored unchanged with 512 devices and all possible fields, and are written once', async () => {
      await using node = await openPublisher();
      const capacity = { memory: { value: '1024Mi' }, share: { value: '1000m' } };
      const more = { capacity, taints, allowMultipleAllocations: true };
      const counted = isNewest ? { sharedCounters } : {};
      node.publish({ devices: [known(fullDevice), ...devices(511, more)], ...counted, maxDevicesPerSlice: 64 });
      await eventually(async () => (await node.slices()).length).toBe(isNewest ? 11 : 8);
      const stored = await node.slices();
      expect(node.errors).toEqual([]);
      const [first, second, ...rest] = stored.flatMap(({ spec }) => spec.devices ?? []);
      expect(rest).toHaveLength(510);
      expect(first).toMatchObject(known(fullDevice));
      // The server normalizes quantities and records the time of taints.
      expect(second).toEqual({
        ...devices(1, more)[0],
        capacity: { memory: { value: '1Gi' }, share: { value: '1' } },
        taints: [{ ...taints[0], timeAdded: expect.stringMatching(/Z$/) }],
      });
      expect(stored.flatMap(({ spec }) => spec.sharedCounters ?? [])).toHaveLength(isNewest ? 20 : 0);
      expect(await node.recheck()).toEqual(stored);
    });

    it.each(resourceVersions)(
      'are read back unchanged and updated in place if the API server serves only %s',
      async (version) => {
        await using node = await openPublisher(version);
        node.publish({ devices: devices(2, { taints }) });
        await eventually(async () => (await node.slices()).length).toBe(1);
        const [before] = await node.slices();
        expect(before?.spec.devices).toMatchObject(devices(2, { taints }));
        expect(await node.recheck()).toEqual([before]);
        node.publish({ devices: devices(3, { taints }) });
        await eventually(async () => (await node.slices())[0]?.spec.devices?.length).toBe(3);
        const [after] = await node.slices();
        expect(after?.metadata.uid).toBe(before?.metadata.uid);
        // The watch reports slices that others remove.
        await cluster.admin.resources.request({ method: 'DELETE', path: `resourceslices/${after?.metadata.name}` });
        await eventually(async () => (await node.slices())[0]?.spec.devices?.length).toBe(3);
        expect(node.errors).toEqual([]);
      },
    );

    it.each(resourceVersions)(
      'can be allocated by claims, which the driver reads correctly if the API server serves only %s',
      async (version) => {
        const pod = buildPod(`reader-${version}`);
        const requests = [
          { name: 'plain', deviceClassName: 'netdra-kernel', devices: ['vf-0'] },
          { name: 'either', deviceClassName: 'netdra-kernel', subrequest: 'fast', devices: ['vf-1'] },
        ];
        const claim = buildClaim(`read-${version}`, { requests, pods: [pod] });
        const { uid: _, ...metadata } = claim.metadata;
        const created = await cluster.createClaim({ ...claim, metadata } as typeof claim);
        const { client } = await cluster.driverOn(`reader-of-${version}`);
        const resources = new ResourceApi(serving(client, version));
        const { metadata: read, spec, status } = await resources.readClaim('default', claim.metadata.name);
        expect({ uid: read?.uid, spec, status }).toMatchObject({
          uid: created.metadata.uid,
          spec: claim.spec,
          status: claim.status,
        });
        expect(resources.version).toBe(version);
        await expect(resources.readClaim('default', 'absent')).rejects.toMatchObject({ code: 'api-not-found' });
      },
    );
  });

  describe('device validation by the driver and by a real API server', () => {
    /** The server's reason to refuse a slice with the device; `undefined` if it accepts the slice. */
    async function refusal(user: ApiUser, device: Device): Promise<string | undefined> {
      const { driver, nodeName } = { driver: testDriver, nodeName: 'validated' };
      const pool = { name: nodeName, generation: 1, resourceSliceCount: 1 };
      const metadata = { name: 'validated' };
      const body = { kind: 'ResourceSlice', metadata, spec: { driver, nodeName, pool, devices: [device] } };
      const request = { method: 'POST' as const, path: 'resourceslices', query: { dryRun: 'All' }, body };
      return await user.resources.request(request).then(() => undefined, explain);
    }

    it('accepts the same values just within the limits', async () => {
      expect(validatePool('validated', { devices: [fullDevice], sharedCounters }, testDriver)).toEqual([]);
      expect(await refusal(cluster.admin, known(fullDevice))).toBeUndefined();
    });

    /** Devices that the server accepts and the driver does not. */
    const stricter = [
      // A number that JavaScript cannot represent.
      'a number beyond 2^53',
      // A second name for one attribute.
      "the driver's own domain",
      // The server validates one slice at a time.
      'an unknown counter set',
      'an unknown counter',
      // Servers refuse these from 1.38 on.
      'two slashes',
      'a version of more than 64 bits',
      'a pre-release of more than 64 bits',
    ];
    const judged = badDevices.filter(([what, { attributes = {}, taints, consumesCounters }]) => {
      // No JSON can hold it.
      if (what === 'a bigint') return false;
      const hasList = Object.values(attributes).some((value) => 'ints' in value);
      return isNewest || !(hasList || taints || consumesCounters);
    });

    it.each(judged)('agrees on %s', async (what, more) => {
      const device = { name: 'vf', ...more };
      expect(validatePool('validated', { devices: [device], sharedCounters }, testDriver)).toHaveLength(1);
      const refused = await refusal(cluster.admin, device);
      if (stricter.includes(what)) expect(refused).toBeUndefined();
      else
        expect(refused).toMatch(
          /the API server answered (422: .* is invalid: \[?spec\.devices\[0\]|400: .* cannot be handled)/,
        );
    });
  });
}
