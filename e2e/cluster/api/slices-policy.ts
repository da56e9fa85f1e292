import { beforeAll, describe, expect, it, vi } from 'vitest';
import type { KubeClient } from '../../../src/framework/kube/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import { testDriver, testNode } from '../../../test/doubles/objects.ts';
import { renderObjects } from '../../release/chart.ts';
import { isSince, readPrograms } from '../programs.ts';
import type { ApiCluster } from './api-cluster.ts';

const otherNode = 'node-2';
const foreignDriver = 'gpu.example.com';
const paths = {
  v1: '/apis/resource.k8s.io/v1/resourceslices',
  v1beta1: '/apis/resource.k8s.io/v1beta1/resourceslices',
};
/** Before 1.36 the gate is alpha, and the API server drops the fields that select nodes for each device. */
const isNewest = isSince(readPrograms(process.env).kubernetesVersion, '1.36');

let cluster: ApiCluster;
let driver: KubeClient;
let kubelet: KubeClient;
/** A slice of the test's node in another node's pool. */
let misnamed: ReturnType<typeof slice>;

/** A slice with one device. @param spec in place of, or beside, that of the test's node */
function slice(spec: object, name = 'written') {
  const pool = { name: testNode, generation: 1, resourceSliceCount: 1 };
  const full = { driver: testDriver, nodeName: testNode, pool, devices: [{ name: 'vf-0' }], ...spec };
  return { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceSlice', metadata: { name }, spec: full };
}
const poolOf = (name: string) => ({ pool: { name, generation: 1, resourceSliceCount: 1 } });

/** The API server's answer to a write that is not stored. */
async function answer(
  user: KubeClient,
  method: 'POST' | 'PUT' | 'DELETE',
  object: ReturnType<typeof slice>,
  path = paths.v1,
): Promise<string> {
  const to = method === 'POST' ? path : `${path}/${object.metadata.name}`;
  const body = method === 'DELETE' ? {} : { body: object };
  return await user.request({ method, path: to, query: { dryRun: 'All' }, ...body }).then(() => 'accepted', explain);
}

/** @param get a cluster with the chart, without its policy for slices, which this installs */
export function describeSlicesPolicy(get: () => ApiCluster): void {
  beforeAll(async () => {
    cluster = get();
    // Written before there was a policy.
    misnamed = await cluster.create(slice(poolOf(otherNode), 'misnamed'));
    const policy = renderObjects({}).filter(({ metadata }) => metadata?.name === 'netdra-slices');
    expect(policy).toHaveLength(2);
    for (const object of policy) await cluster.create(object);
    driver = (await cluster.driverOn(testNode)).client;
    kubelet = cluster.kubeletOn(testNode).client;
    const refused = () => answer(driver, 'POST', slice({ nodeName: otherNode }));
    await vi.waitFor(async () => expect(await refused()).toContain('may not touch'), {
      timeout: 30_000,
      interval: 250,
    });
  });

  describe("admission of ResourceSlices written with the driver's token", () => {
    it("accepts a slice in the pool of the driver's node, but not in the pool of another node", async () => {
      expect(await answer(driver, 'POST', slice({}))).toBe('accepted');
      const refusal = `a ResourceSlice of ${testDriver} for node '${testNode}' may not have pool '${otherNode}'`;
      expect(await answer(driver, 'POST', slice(poolOf(otherNode)))).toContain(refusal);
      // In this version a device's attributes are in another place.
      const old = { ...slice({ ...poolOf(otherNode), devices: [{ name: 'vf-0', basic: {} }] }) };
      const oldSlice = { ...old, apiVersion: 'resource.k8s.io/v1beta1' };
      expect(await answer(driver, 'POST', oldSlice, paths.v1beta1)).toContain(refusal);
    });

    it.each<[string, object, boolean]>([
      ['another node', { nodeName: otherNode, ...poolOf(otherNode) }, true],
      ['another node, in the pool of that node', { nodeName: otherNode }, true],
      ['all nodes', { nodeName: undefined, allNodes: true }, true],
      ['all nodes in addition to its own node', { allNodes: true }, true],
      [
        'nodes that a selector selects',
        {
          nodeName: undefined,
          nodeSelector: {
            nodeSelectorTerms: [{ matchFields: [{ key: 'metadata.name', operator: 'In', values: [otherNode] }] }],
          },
        },
        true,
      ],
      [
        'another node, set for each device',
        { nodeName: undefined, perDeviceNodeSelection: true, devices: [{ name: 'vf-0', nodeName: otherNode }] },
        isNewest,
      ],
      ['another node, set for one of the devices', { devices: [{ name: 'vf-0', nodeName: otherNode }] }, isNewest],
    ])('rejects devices on %s', async (_where, spec, isKnown) => {
      // Fields that the API server does not know are dropped, and what is left is the node's own.
      if (!isKnown) return;
      expect(await answer(driver, 'POST', slice(spec))).not.toBe('accepted');
    });

    it('rejects devices from a token that is bound to no node', async () => {
      const { client } = await cluster.driverOnNoNode();
      expect(await answer(client, 'POST', slice({}))).toContain(
        'the token of netdra is bound to no node; it must be that of a pod',
      );
    });

    it('rejects changing or deleting slices of other nodes, of all nodes or of other drivers', async () => {
      const kept = [
        slice({ nodeName: otherNode, ...poolOf(otherNode) }, 'other-node'),
        slice({ driver: foreignDriver, nodeName: undefined, allNodes: true }, 'all-nodes'),
        slice({ driver: foreignDriver }, 'other-driver'),
      ];
      for (const each of kept) {
        const stored = await cluster.create(each);
        for (const method of ['PUT', 'DELETE'] as const) {
          expect(await answer(driver, method, stored), `${method} ${each.metadata.name}`).toMatch(
            /netdra.* may (not )?touch/,
          );
        }
        expect(
          await answer(driver, 'PUT', { ...stored, spec: { ...stored.spec, nodeName: testNode, ...poolOf(testNode) } }),
        ).not.toBe('accepted');
      }
    });
  });

  describe("admission of a ResourceSlice's pool", () => {
    it("requires the node's own pool from every account", async () => {
      for (const user of [kubelet, cluster.admin.client]) {
        expect(await answer(user, 'POST', slice({}))).toBe('accepted');
        expect(await answer(user, 'POST', slice(poolOf(otherNode)))).toContain(
          `a ResourceSlice of ${testDriver} for node '${testNode}' may not have pool '${otherNode}'`,
        );
      }
      const everywhere = slice({ nodeName: undefined, allNodes: true });
      expect(await answer(cluster.admin.client, 'POST', everywhere)).toContain(`may not have pool '${testNode}'`);
    });

    it("allows driver and kubelet to delete, but not to change, a slice with another node's pool", async () => {
      for (const user of [driver, kubelet]) {
        expect(await answer(user, 'DELETE', misnamed)).toBe('accepted');
        expect(await answer(user, 'PUT', misnamed)).toContain(`may not have pool '${otherNode}'`);
      }
    });

    it('allows other drivers any pool', async () => {
      const { client } = cluster.admin;
      const everywhere = slice({ driver: foreignDriver, nodeName: undefined, allNodes: true, ...poolOf('shared') });
      expect(await answer(client, 'POST', everywhere)).toBe('accepted');
      expect(await answer(kubelet, 'POST', slice({ driver: foreignDriver, ...poolOf('gpus') }))).toBe('accepted');
    });
  });
}
