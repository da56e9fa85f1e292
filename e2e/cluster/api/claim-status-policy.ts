import { beforeAll, describe, expect, it, vi } from 'vitest';
import type { JsonPatchOperation } from '../../../src/framework/kube/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import { buildClaim, buildPod, testDriver, testNode } from '../../../test/doubles/objects.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

const foreignDriver = 'gpu.example.com';
const entry = (driver: string, pool: string, device: string) => ({ driver, pool, device, data: { state: 'new' } });
const otherPod: JsonPatchOperation = {
  op: 'add',
  path: '/status/reservedFor/-',
  value: { resource: 'pods', name: 'other', uid: 'other' },
};
let cluster: ApiCluster;
let driver: ApiUser;
let elsewhere: ApiUser;

/** The API server's answer to a patch of the claim. */
async function answer(user: ApiUser, body: JsonPatchOperation[], subresource = '/status'): Promise<string> {
  const path = `/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c${subresource}`;
  const contentType = 'application/json-patch+json';
  return await user.client
    .request({ method: 'PATCH', path, query: { dryRun: 'All' }, contentType, body })
    .then(() => 'accepted', explain);
}

/** Leaves the driver's account with more permissions than the chart gives it. */
export function describeClaimStatusPolicy(get: () => ApiCluster): void {
  describe("admission of claim status written with the driver's token", () => {
    beforeAll(async () => {
      cluster = get();
      // As on Kubernetes before 1.36, or where other bindings grant more than the chart does: RBAC alone would allow these.
      await cluster.create({
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRole',
        metadata: { name: 'more' },
        rules: [
          { apiGroups: ['resource.k8s.io'], resources: ['resourceclaims', 'resourceclaims/status'], verbs: ['*'] },
          {
            apiGroups: ['resource.k8s.io'],
            resources: ['resourceclaims/binding', 'resourceclaims/driver'],
            verbs: ['*'],
          },
        ],
      } as never);
      await cluster.create({
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRoleBinding',
        metadata: { name: 'more' },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'more' },
        subjects: [{ kind: 'ServiceAccount', name: 'netdra', namespace: 'kube-system' }],
      } as never);
      driver = await cluster.driverOn(testNode);
      elsewhere = await cluster.driverOn('elsewhere');
      const pods = [buildPod('app')];
      const requests = [
        { name: 'vf', deviceClassName: 'netdra-kernel', devices: ['vf-0'] },
        { name: 'gpu', deviceClassName: 'gpu', devices: [{ device: 'gpu-0', driver: foreignDriver }] },
      ];
      const claim = buildClaim('c', { requests, pods });
      const { uid: _, ...metadata } = claim.metadata;
      await cluster.createClaim({ ...claim, metadata } as typeof claim);
      const forbidden = () => answer(driver, [otherPod]);
      await vi.waitFor(async () => expect(await forbidden()).toContain('for whom'), { timeout: 30_000, interval: 250 });
    });

    it("accepts entries for the driver's own devices on its own node", async () => {
      const value = [entry(testDriver, testNode, 'vf-0')];
      expect(await answer(driver, [{ op: 'add', path: '/status/devices', value }])).toBe('accepted');
    });

    it('rejects entries written from another node', async () => {
      const value = [entry(testDriver, testNode, 'vf-0')];
      expect(await answer(elsewhere, [{ op: 'add', path: '/status/devices', value }])).toContain(
        'netdra on node elsewhere may not write entries of devices on other nodes',
      );
    });

    it('rejects entries for other drivers', async () => {
      const value = [entry(foreignDriver, testNode, 'gpu-0')];
      expect(await answer(driver, [{ op: 'add', path: '/status/devices', value }])).toContain(
        `netdra may write entries of ${testDriver} in status.devices only`,
      );
    });

    const forged = {
      source: 'FromClass',
      opaque: {
        driver: testDriver,
        parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', attach: 'cni', cni: { type: 'macvlan' } },
      },
    };
    it.each<[string, JsonPatchOperation]>([
      ['a forged configuration of a class', { op: 'add', path: '/status/allocation/devices/config', value: [forged] }],
      ['another device', { op: 'replace', path: '/status/allocation/devices/results/0/device', value: 'vf-1' }],
      ['a missing allocation', { op: 'remove', path: '/status/allocation' }],
      ['another pod', otherPod],
    ])('rejects %s in an entry', async (what, patch) => {
      const refusal = await answer(driver, [patch]);
      expect(refusal).not.toBe('accepted');
      // Some are refused as invalid before any policy is evaluated.
      if (!refusal.includes('is invalid')) {
        expect(refusal, what).toContain('netdra may not change the allocation of a ResourceClaim');
      }
    });

    it('rejects changes outside status', async () => {
      const patch: JsonPatchOperation = { op: 'add', path: '/metadata/labels', value: { a: 'b' } };
      expect(await answer(driver, [patch], '')).toContain('netdra may write the status of ResourceClaims only');
    });
  });
}
