import type { V1ClusterRole, V1PolicyRule } from '@kubernetes/client-node';
import { beforeAll, describe, expect, it } from 'vitest';
import { EventWriter, FailureEvents, type KubeEvent } from '../../../src/driver/events/index.ts';
import { type ClaimStatusApi, ClaimStatusWriter, type DeviceStatus } from '../../../src/framework/claimstatus/index.ts';
import type { AllocatedDeviceStatus, KubeList } from '../../../src/framework/kube/index.ts';
import type { ClaimIdentity } from '../../../src/framework/metadata/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver, testNode } from '../../../test/doubles/objects.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

const foreignDriver = 'gpu.example.com';
/** Keys in another order than Go's encoding of a map. Clients other than kubectl send such objects. */
const unsorted = { kind: 'VFConfig', apiVersion: 'netdra.dev/v1alpha1', interfaceName: 'net1' };

const attached: DeviceStatus = {
  pool: testNode,
  device: 'vf-0',
  ready: true,
  reason: 'Attached',
  data: { pciAddress: '0000:3b:02.1', attach: 'netlink' },
  networkData: { interfaceName: 'net1', ips: ['192.0.2.10/24'], hardwareAddress: '02:00:00:00:00:01' },
};
const ours = {
  driver: testDriver,
  pool: testNode,
  device: 'vf-0',
  data: attached.data,
  networkData: attached.networkData,
  conditions: [expect.objectContaining({ type: 'Ready', status: 'True', reason: 'Attached' })],
};
let cluster: ApiCluster;
let driver: ApiUser;

/** A claim of a pod with one of our devices and one of another driver, allocated on our node. */
async function createClaim(name: string, parameters: object = unsorted): Promise<ClaimIdentity> {
  const pod = buildPod(`pod-of-${name}`);
  const claim = buildClaim(name, {
    requests: [
      { name: 'vf', deviceClassName: 'netdra-kernel', devices: ['vf-0'] },
      { name: 'gpu', deviceClassName: 'gpu', devices: [{ device: 'gpu-0', driver: foreignDriver }] },
    ],
    config: [{ source: 'FromClaim', requests: ['vf'], parameters }],
    pods: [pod],
  });
  const { uid: _, ...metadata } = claim.metadata;
  const { uid } = (await cluster.createClaim({ ...claim, metadata } as typeof claim)).metadata;
  return { namespace: 'default', name, uid };
}

const pathOf = ({ namespace, name }: ClaimIdentity) =>
  `/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims/${name}/status`;

async function entriesOf({ namespace, name }: ClaimIdentity): Promise<AllocatedDeviceStatus[]> {
  return (await cluster.admin.resources.readClaim(namespace, name)).status?.devices ?? [];
}

/** Writes the entry of another driver, with `data` in the order of a struct instead of sorted keys. */
async function writeForeign(claim: ClaimIdentity, generation: number): Promise<AllocatedDeviceStatus> {
  const entry = {
    driver: foreignDriver,
    pool: testNode,
    device: 'gpu-0',
    data: { uuid: 'GPU-1', generation, 10: 'ten' },
  };
  const entries = await entriesOf(claim);
  const index = entries.findIndex((each) => each.driver === foreignDriver);
  const path = `/status/devices${entries.length === 0 ? '' : `/${index === -1 ? '-' : index}`}`;
  const patch = { op: index === -1 ? 'add' : 'replace', path, value: entries.length === 0 ? [entry] : entry };
  await cluster.admin.client.request({
    method: 'PATCH',
    path: pathOf(claim),
    contentType: 'application/json-patch+json',
    body: [patch],
  });
  return entry;
}

function open(user: ApiUser, change = (api: ClaimStatusApi) => api) {
  const logger = new RecordingLogger();
  const eventWriter = new EventWriter(user.client, {
    controller: testDriver,
    instance: testNode,
    clock: systemClock,
    logger,
  });
  const events = new FailureEvents(eventWriter);
  const api = change(user.resources);
  const writer = new ClaimStatusWriter(api, {
    driver: testDriver,
    clock: systemClock,
    logger,
    onPersistentFailure: (claim, error) => events.statusNotWritten(claim, [], error),
  });
  const warnings = () => logger.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields.reason);
  return {
    writer,
    warnings,
    async [Symbol.asyncDispose]() {
      await writer[Symbol.asyncDispose]();
      await eventWriter[Symbol.asyncDispose]();
    },
  };
}

const eventually = <T>(what: () => Promise<T>) => expect.poll(what, { timeout: 60_000, interval: 50 });

export function describeClaimStatus(get: () => ApiCluster): void {
  describe("claim status on a real API server, with the driver's permissions", () => {
    beforeAll(async () => {
      cluster = get();
      driver = await cluster.driverOn(testNode);
    });

    it('is written for a claim whose opaque parameters are not sorted by name', async () => {
      const claim = await createClaim('unsorted');
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      await eventually(async () => ({ entries: await entriesOf(claim), warnings: status.warnings() })).toEqual({
        entries: [ours],
        warnings: [],
      });
    });

    it('leaves entries of other drivers untouched when the entry of netdra is written, changed and removed', async () => {
      const claim = await createClaim('shared');
      const foreign = expect.objectContaining(await writeForeign(claim, 1));
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      await eventually(() => entriesOf(claim)).toEqual([foreign, ours]);
      status.writer.set(claim, [{ ...attached, data: { attach: 'cni' } }]);
      await eventually(() => entriesOf(claim)).toEqual([foreign, { ...ours, data: { attach: 'cni' } }]);
      status.writer.remove(claim);
      await eventually(() => entriesOf(claim)).toEqual([foreign]);
      await eventually(async () => status.writer.size).toBe(0);
      expect(status.warnings()).toEqual([]);
    });

    it('keeps large numbers in entries of other drivers exact, which JavaScript would round', async () => {
      const claim = await createClaim('exact');
      await writeForeign(claim, 1);
      const exact = '18446744073709551615';
      // Written literally: JSON.stringify cannot write this number.
      const patch = `[{"op":"add","path":"/status/devices/0/data","value":{"uuid":"GPU-1","guid":${exact}}}]`;
      await cluster.send('PATCH', pathOf(claim), patch, 'application/json-patch+json');
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      await eventually(() => entriesOf(claim)).toHaveLength(2);
      expect(await cluster.send('GET', pathOf(claim))).toContain(`"guid":${exact}`);
      expect(status.warnings()).toEqual([]);
    });

    it('loses nothing when another driver writes at the same time', async () => {
      const claim = await createClaim('contended');
      let generation = 0;
      const conflicts: number[] = [];
      await using status = open(driver, (api) => ({
        readClaim: (...call) => api.readClaim(...call),
        async patchClaimStatus(...call) {
          // Between the read on which the patch is based and the patch itself.
          if (conflicts.length < 3) await writeForeign(claim, ++generation);
          return await api.patchClaimStatus(...call).catch((error) => {
            conflicts.push(error.httpStatus);
            throw error;
          });
        },
      }));
      status.writer.set(claim, [attached]);
      await eventually(() => entriesOf(claim)).toHaveLength(2);
      expect(await entriesOf(claim)).toEqual([
        expect.objectContaining({ driver: foreignDriver, data: { uuid: 'GPU-1', generation: 3, 10: 'ten' } }),
        ours,
      ]);
      expect(conflicts).toEqual([409, 409, 409]);
      expect(status.warnings()).toEqual([]);
    });

    it('is written correctly after another driver has removed its entry, which shifts the list', async () => {
      const claim = await createClaim('shorter');
      await writeForeign(claim, 1);
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      await eventually(() => entriesOf(claim)).toHaveLength(2);
      // Our entry was the second one; after the removal there is no second entry.
      await cluster.send(
        'PATCH',
        pathOf(claim),
        '[{"op":"remove","path":"/status/devices/0"}]',
        'application/json-patch+json',
      );
      status.writer.set(claim, [{ ...attached, reason: 'AddressChanged' }]);
      await eventually(() => entriesOf(claim)).toMatchObject([
        { driver: testDriver, conditions: [{ reason: 'AddressChanged' }] },
      ]);
      expect(status.warnings()).toEqual([]);
    });

    it('is not written to another claim with the same name', async () => {
      const claim = await createClaim('replaced');
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      await eventually(() => entriesOf(claim)).toHaveLength(1);
      await cluster.send('DELETE', pathOf(claim).replace('/status', ''));
      const successor = await createClaim('replaced');
      expect(successor.uid).not.toBe(claim.uid);
      status.writer.set(claim, [{ ...attached, reason: 'AddressChanged' }]);
      await eventually(async () => status.writer.size).toBe(0);
      expect(await entriesOf(successor)).toEqual([]);
      expect(status.warnings()).toEqual([]);
    });

    it('cannot be written by the driver of another node since Kubernetes 1.36', async ({ skip }) => {
      skip((await cluster.minorVersion()) < 36, 'older API servers do not compare the node');
      const claim = await createClaim('elsewhere');
      await using status = open(await cluster.driverOn('node-2'));
      status.writer.set(claim, [attached]);
      await eventually(async () => status.warnings()).toEqual([
        expect.stringContaining('its token must be that of a pod on'),
      ]);
      expect(await entriesOf(claim)).toEqual([]);
    });

    it('reports a changed entry of another driver as a conflict, not as a missing permission', async ({ skip }) => {
      skip((await cluster.minorVersion()) < 36, 'older API servers do not compare entries');
      const claim = await createClaim('foreign-form');
      const stored = JSON.parse(await cluster.send('GET', pathOf(claim)));
      stored.status.devices = [{ driver: foreignDriver, pool: testNode, device: 'gpu-0', data: { '<': 1 } }];
      // Only a PUT is stored byte by byte.
      await cluster.send('PUT', pathOf(claim), JSON.stringify(stored));
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      await eventually(async () => status.warnings()).toEqual([expect.stringContaining('the entry of another driver')]);
    });

    it('omits a device that is not allocated, because the API server would reject its entry', async () => {
      const claim = await createClaim('unallocated');
      await using status = open(driver);
      status.writer.set(claim, [{ ...attached, device: 'vf-9' }, attached]);
      await eventually(() => entriesOf(claim)).toEqual([ours]);
      expect(status.warnings()).toEqual([]);
    });

    it('names a missing permission in a warning, and is written once the permission is granted', async ({ skip }) => {
      skip((await cluster.minorVersion()) < 36, 'Kubernetes 1.36 and newer have it');
      const path = '/apis/rbac.authorization.k8s.io/v1/clusterroles';
      const { items } = await cluster.admin.client.request<KubeList<V1ClusterRole>>({ method: 'GET', path });
      const asksFor = ({ resources }: V1PolicyRule) => resources?.includes('resourceclaims/driver') ?? false;
      const role = items.find(({ metadata, rules }) => metadata?.name === 'netdra' && rules?.some(asksFor));
      const setRules = async (rules: V1PolicyRule[] | undefined) => {
        const body = { metadata: { name: role?.metadata?.name }, rules };
        await cluster.admin.client.request({ method: 'PUT', path: `${path}/${role?.metadata?.name}`, body });
      };
      const claim = await createClaim('unpermitted');
      await setRules(role?.rules?.filter((rule) => !asksFor(rule)));
      await using status = open(driver);
      try {
        status.writer.set(claim, [attached]);
        const rule = `resources: [resourceclaims/driver], verbs: ["associated-node:patch"], resourceNames: [${testDriver}]`;
        await eventually(async () => status.warnings()).toEqual([expect.stringContaining(rule)]);
      } finally {
        await setRules(role?.rules);
      }
      await eventually(() => entriesOf(claim)).toEqual([ours]);
    });

    it('causes a warning event on the claim if the API server escapes characters of the parameters', async () => {
      const claim = await createClaim('escaped', { ...unsorted, interfaceName: 'net<1' });
      await using status = open(driver);
      status.writer.set(claim, [attached]);
      const hint = expect.stringContaining('without <, > and &');
      await eventually(async () => status.warnings()).toEqual([hint]);
      await eventually(async () => {
        const path = '/apis/events.k8s.io/v1/namespaces/default/events';
        const { items } = await cluster.admin.client.request<KubeList<KubeEvent>>({ method: 'GET', path });
        return items.filter(({ regarding }) => regarding.uid === claim.uid);
      }).toEqual([expect.objectContaining({ type: 'Warning', reason: 'StatusNotWritten', note: hint })]);
    });
  });
}
