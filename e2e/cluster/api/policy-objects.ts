import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { PolicyOrigin } from '../../../src/driver/devices/policy-file.ts';
import { mostRefusals, type NetworkDevicePolicy, PolicyObjects } from '../../../src/driver/policy/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { explain, NetdraError } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

const path = '/apis/netdra.dev/v1alpha1/networkdevicepolicies';
const node = 'ruled';
const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'NetworkDevicePolicy' };
const settled = { timeout: 20_000, interval: 250 };
let cluster: ApiCluster;
let driver: ApiUser;

const create = (name: string, spec: object, query = {}) =>
  cluster.admin.client.request<NetworkDevicePolicy>({
    ...{ method: 'POST', path, query, body: { ...head, metadata: { name }, spec } },
  });
const read = (name: string) =>
  cluster.admin.client.request<NetworkDevicePolicy>({ method: 'GET', path: `${path}/${name}` });
/** The API server's answer to an object that is not stored. */
const answer = (spec: object) =>
  create('checked', spec, { dryRun: 'All', fieldValidation: 'Strict' }).then(() => 'accepted', explain);
const label = (value: string | null) =>
  cluster.admin.client.request({
    ...{ method: 'PATCH', path: `/api/v1/nodes/${node}`, contentType: 'application/merge-patch+json' },
    body: { metadata: { labels: { rack: value } } },
  });
/** Applies the status of a policy as a driver. */
const apply = (user: ApiUser, name: string, fieldManager: string, refusedBy: object[]) => {
  const request = { method: 'PATCH', path: `${path}/${name}/status`, contentType: 'application/apply-patch+yaml' };
  const body = { ...head, metadata: { name }, status: { refusedBy } };
  return user.client
    .request({ ...request, method: 'PATCH', query: { fieldManager, force: 'true' }, body })
    .then(() => 'accepted', explain);
};
const entry = (of: string) => ({ node: of, generation: 1, message: 'x' });

/** A driver that refuses some policies, and looks four times in a second. */
function follow(user: ApiUser, refuses: string[] = []) {
  const dir = mkdtempSync(join(tmpdir(), 'policy-'));
  const seen: (PolicyOrigin | undefined)[] = [];
  const logger = new RecordingLogger();
  const errors: string[] = [];
  const source = new PolicyObjects({
    ...{ kube: user.client, driver: testDriver, node, clock: systemClock, logger, random: () => 0 },
    ...{ statePath: join(dir, 'policy.json'), onError: (error) => errors.push(explain(error)) },
  });
  let fault = '';
  const look = async () => {
    const found = await source.follow((_, origin) => {
      if (refuses.includes(origin?.name ?? '')) throw new NetdraError('policy-refused', 'does not suit');
      seen.push(origin);
    });
    fault = found === undefined ? '' : explain(found);
  };
  const timer = setInterval(() => void look().catch((error: unknown) => (fault = explain(error))), 250);
  return {
    ...{ seen, errors, logger, fault: () => fault },
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      await source[Symbol.asyncDispose]();
      rmSync(dir, { recursive: true });
    },
  };
}

/** @param get a cluster with the chart's objects */
export function describePolicyObjects(get: () => ApiCluster): void {
  describe('NetworkDevicePolicies', () => {
    beforeAll(async () => {
      cluster = get();
      driver = await cluster.driverOn(node);
      await vi.waitFor(async () => expect(await answer({ nodeSelector: {} })).toBe('accepted'), settled);
    });
    afterEach(async () => {
      await cluster.admin.client.request({ method: 'DELETE', path });
      await label(null);
    });

    it.each<[string, object]>([
      ['spec.nodeSelector: Required', { pfs: [] }],
      [
        'spec.nodeSelector: Invalid value.*values are needed with In',
        { nodeSelector: { matchExpressions: [{ key: 'a', operator: 'In' }] } },
      ],
      ['spec.pfs\\[0\\].select: Required', { nodeSelector: {}, pfs: [{ numVfs: 1 }] }],
      [
        'spec.pfs\\[0\\].vfs: Invalid value.*a range ends before it begins',
        { nodeSelector: {}, pfs: [{ select: {}, vfs: '1,3-2' }] },
      ],
      ['spec.pfs\\[0\\].vfs: Invalid value.*should match', { nodeSelector: {}, pfs: [{ select: {}, vfs: 'all' }] }],
      ['spec.pfs\\[0\\].select.vendor: Invalid value', { nodeSelector: {}, pfs: [{ select: { vendor: '8086' } }] }],
      [
        'spec.pfs\\[0\\].select.vendor\\[0\\]: Invalid value',
        { nodeSelector: {}, pfs: [{ select: { vendor: ['intel'] } }] },
      ],
      ['spec.nics\\[0\\].select: Invalid value.*at least 1 prop', { nodeSelector: {}, nics: [{ select: {} }] }],
      ['spec.taints.hung: Unsupported value', { nodeSelector: {}, taints: { hung: 'None' } }],
      ['unknown field "spec.pfs\\[0\\].colour"', { nodeSelector: {}, pfs: [{ select: {}, colour: 'red' }] }],
    ])('are refused by the API server with %s', async (message, spec) => {
      expect(await answer(spec)).toMatch(new RegExp(message));
    });

    it('are followed by label of the Node, from one to the next; one that the node refuses has an entry until it does not', async () => {
      await using own = follow(driver, ['wrong']);
      await expect.poll(() => own.seen, settled).toEqual([undefined]);
      await create('racks', {
        nodeSelector: { matchLabels: { rack: 'a' } },
        pfs: [{ select: { driver: ['igb'] }, vfs: '0-3,6' }],
      });
      await label('a');
      await expect.poll(() => own.seen.slice(1), settled).toEqual([{ name: 'racks', generation: 1 }]);
      await create('wrong', { nodeSelector: { matchLabels: { rack: 'b' } } });
      await label('b');
      await expect
        .poll(async () => (await read('wrong')).status?.refusedBy, settled)
        .toEqual([{ node, generation: 1, message: 'does not suit' }]);
      expect([own.fault(), own.seen.length]).toEqual(['does not suit', 2]);
      const [names = '', line = ''] = cluster.kubectl('get', 'ndp', 'wrong').split('\n');
      expect(names.split(/ {2,}/)).toEqual(['NAME', 'FIRST REFUSED BY', 'GENERATION', 'AGE']);
      expect(line).toMatch(/^wrong +ruled +1 +\d+s *$/);
      // What an administrator does with an entry of a node that is gone; one that still refuses it writes it again.
      cluster.kubectl('patch', 'ndp', 'wrong', '--subresource=status', '--type=merge', '--patch={"status":null}');
      await expect.poll(async () => (await read('wrong')).status?.refusedBy?.length, settled).toBe(1);
      await label('a');
      await expect.poll(async () => (await read('wrong')).status?.refusedBy ?? [], settled).toEqual([]);
      expect([own.fault(), own.seen.length, own.errors]).toEqual(['', 2, []]);
      const stored = await read('wrong');
      expect([stored.metadata.generation, JSON.stringify(stored.metadata).includes('f:refusedBy')]).toEqual([1, false]);
      await cluster.admin.client.request({ method: 'DELETE', path: `${path}/racks` });
      await expect.poll(() => own.seen.slice(2), settled).toEqual([undefined]);
      expect(own.logger.messages('warn')).toEqual([]);
    });

    it('have an entry of the node of each token, and of no other; as many as fit', async () => {
      await create('shared', { nodeSelector: {} });
      await vi.waitFor(
        async () =>
          expect(await apply(driver, 'shared', 'x', [entry('other')])).toContain(
            'may write only the entry of that node',
          ),
        settled,
      );
      expect(await apply(driver, 'shared', 'ruled', [entry(node)])).toBe('accepted');
      const other = await cluster.driverOn('ruled-2');
      expect(await apply(other, 'shared', 'ruled-2', [entry('ruled-2')])).toBe('accepted');
      // Also in the name of the first one's manager.
      expect(await apply(other, 'shared', 'ruled', [])).toContain('netdra on node ruled-2 may write only');
      expect(await apply(await cluster.driverOnNoNode(), 'shared', 'x', [entry('x')])).toContain('bound to no node');
      const spec = { method: 'PATCH', path: `${path}/shared`, contentType: 'application/merge-patch+json' } as const;
      await expect(driver.client.request({ ...spec, body: { spec: { pfs: [] } } })).rejects.toMatchObject({
        code: 'api-forbidden',
      });
      expect((await read('shared')).status?.refusedBy?.map((each) => each.node)).toEqual([node, 'ruled-2']);
      expect(cluster.kubectl('get', 'ndp', 'shared')).toMatch(/^shared +ruled/m);
      const full = Array.from({ length: mostRefusals - 1 }, (_, index) => entry(`n${index}`));
      expect(await apply(cluster.admin, 'shared', 'admin', full)).toMatch(/must have at most 10 items/);
      expect(await apply(cluster.admin, 'shared', 'admin', full.slice(1))).toBe('accepted');
    });
  });
}
