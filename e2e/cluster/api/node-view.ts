import { beforeAll, describe, expect, it, vi } from 'vitest';
import { NodeViewWriter, readNodeView, type StoredView } from '../../../src/driver/nodeview/index.ts';
import type { KubeClient, ObjectMeta } from '../../../src/framework/kube/index.ts';
import { createSliceApi } from '../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { explain } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { largestSources } from '../../../test/unit/driver/nodeview/sources.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

type Stored = { metadata: ObjectMeta & { managedFields?: object[] }; status: StoredView };

const node = 'viewed';
const path = '/apis/netdra.dev/v1alpha1/nodenetworkdevices';
const view = readNodeView(largestSources());
let cluster: ApiCluster;
let driver: ApiUser;

function openWriter(user: ApiUser) {
  const errors: string[] = [];
  const sliceApi = createSliceApi(user.client, user.resources, { driver: testDriver, nodeName: node });
  const writer = new NodeViewWriter(user.client, {
    driver: testDriver,
    node,
    clock: systemClock,
    now: () => new Date(),
    random: () => 0,
    read: () => view,
    logger: new RecordingLogger(),
    nodeUid: (signal) => sliceApi.nodeUid(signal),
    onError: (error) => errors.push(explain(error)),
  });
  return { writer, errors, [Symbol.asyncDispose]: () => writer[Symbol.asyncDispose]() };
}

const read = async () => await cluster.admin.client.request<Stored>({ method: 'GET', path: `${path}/${node}` });

/** The API server's answer to an object that is applied, and not stored. */
async function answer(client: KubeClient, name: string): Promise<string> {
  const query = { fieldManager: testDriver, force: 'true', dryRun: 'All' };
  const body = {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'NodeNetworkDevices',
    metadata: { name },
    status: { problems: [] },
  };
  const contentType = 'application/apply-patch+yaml';
  return await client
    .request({ method: 'PATCH', path: `${path}/${name}`, query, contentType, body })
    .then(() => 'accepted', explain);
}

export function describeNodeView(get: () => ApiCluster): void {
  describe('NodeNetworkDevices', () => {
    beforeAll(async () => {
      cluster = get();
      driver = await cluster.driverOn(node);
      const refused = () => answer(driver.client, 'other-node');
      await vi.waitFor(async () => expect(await refused()).toContain('may not write'), {
        timeout: 30_000,
        interval: 250,
      });
    });

    it('are stored unchanged up to the largest size, with the Node as owner and few managed fields', async () => {
      await using own = openWriter(driver);
      own.writer.note();
      await expect.poll(read, { timeout: 20_000, interval: 250 }).toBeDefined();
      expect(own.errors).toEqual([]);
      const { metadata, status } = await read();
      const { metadata: owner } = await cluster.admin.client.request<{ metadata: ObjectMeta }>({
        method: 'GET',
        path: `/api/v1/nodes/${node}`,
      });
      expect(metadata.ownerReferences).toEqual([{ apiVersion: 'v1', kind: 'Node', name: node, uid: owner.uid }]);
      const { conditions, ...rest } = view;
      expect(status).toMatchObject({ ...rest, conditions });
      expect(JSON.stringify(metadata.managedFields).length).toBeLessThan(2_000);
    });

    it('are written only once if nothing changes across a restart of the driver', async () => {
      const before = await read();
      await using own = openWriter(driver);
      own.writer.note();
      await systemClock.sleep(4_000);
      expect(own.errors).toEqual([]);
      expect(await read()).toEqual(before);
    });

    it('are printed by kubectl as one line per node', () => {
      const [head = '', line = ''] = cluster.kubectl('get', 'nnd').split('\n');
      expect(head.split(/ {2,}/)).toEqual([
        'NAME',
        'DRIVER',
        'OFFERED',
        'IN USE',
        'WITHHELD',
        'FIRST NO CARRIER',
        'POLICY',
        'AGE',
      ]);
      expect(line).toMatch(/^viewed +0\.1\.0 +2048 +2048 +4096 +Refused +\d+s *$/);
      const isRefused = ['wait', '--for=condition=PolicyAccepted=false', '--timeout=5s', `nnd/${node}`];
      expect(cluster.kubectl(...isRefused)).toContain('condition met');
    });

    it('can be written with the token of the driver on the same node only', async () => {
      expect(await answer(driver.client, node)).toBe('accepted');
      const elsewhere = await cluster.driverOn('viewed-elsewhere');
      const refusal = `netdra on node viewed-elsewhere may not write the NodeNetworkDevices of node ${node}`;
      expect(await answer(elsewhere.client, node)).toContain(refusal);
      const { client } = await cluster.driverOnNoNode();
      expect(await answer(client, node)).toContain('the token of netdra is bound to no node');
    });

    it('are rejected if they contain a field that the CustomResourceDefinition does not know', async () => {
      const body = {
        apiVersion: 'netdra.dev/v1alpha1',
        kind: 'NodeNetworkDevices',
        metadata: { name: node },
        status: { next: 1 },
      };
      const query = { fieldManager: testDriver, force: 'true' };
      const contentType = 'application/apply-patch+yaml';
      const request = driver.client.request({ method: 'PATCH', path: `${path}/${node}`, query, contentType, body });
      await expect(request).rejects.toMatchObject({
        code: 'api-failed',
        message: expect.stringContaining('.status.next'),
      });
    });
  });
}

/** @param get a cluster with a chart that does not show nodes */
export function describeNoNodeViews(get: () => ApiCluster): void {
  it('requests for NodeNetworkDevices fail with api-unserved or api-forbidden if the cluster has no such definition', async () => {
    const { admin } = get();
    for (const { client, code } of [
      { client: admin.client, code: 'api-unserved' },
      { client: (await get().driverOn('unseen')).client, code: 'api-forbidden' },
    ]) {
      const request = { path: `${path}/unseen`, contentType: 'application/apply-patch+yaml' };
      await expect(client.request({ ...request, method: 'GET' })).rejects.toMatchObject({ code });
      const query = { fieldManager: testDriver };
      const body = { apiVersion: 'netdra.dev/v1alpha1', kind: 'NodeNetworkDevices', metadata: { name: 'unseen' } };
      await expect(client.request({ ...request, method: 'PATCH', query, body })).rejects.toMatchObject({ code });
    }
  });
}
