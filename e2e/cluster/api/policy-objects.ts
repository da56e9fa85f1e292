import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { V1CustomResourceDefinition } from '@kubernetes/client-node';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { PolicyOrigin } from '../../../src/driver/devices/policy-file.ts';
import { type NetworkDevicePolicy, PolicyObjects } from '../../../src/driver/policy/index.ts';
import type { KubeError } from '../../../src/framework/kube/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { explain, NetdraError } from '../../../src/lib/errors.ts';
import { textFiles } from '../../../src/lib/text-files.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

const path = '/apis/netdra.dev/v1alpha1/networkdevicepolicies';
const node = 'ruled';
const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'NetworkDevicePolicy' };
/** A deletion counts after some seconds. */
const settled = { timeout: 60_000, interval: 250 };
let cluster: ApiCluster;
let driver: ApiUser;

const create = (name: string, spec: object, query = {}) =>
  cluster.admin.client.request<NetworkDevicePolicy>({
    method: 'POST',
    path,
    query,
    body: { ...head, metadata: { name }, spec },
  });
const read = (name: string) =>
  cluster.admin.client.request<NetworkDevicePolicy>({ method: 'GET', path: `${path}/${name}` });
/** The API server's answer to an object that is not stored. */
const answer = (spec: object) =>
  create('checked', spec, { dryRun: 'All', fieldValidation: 'Strict' }).then(() => 'accepted', explain);
const label = (value: string | null) =>
  cluster.admin.client.request({
    method: 'PATCH',
    path: `/api/v1/nodes/${node}`,
    contentType: 'application/merge-patch+json',
    body: { metadata: { labels: { rack: value } } },
  });
/** A driver that refuses some policies, and looks four times in a second. */
function follow(user: ApiUser, refuses: string[] = []) {
  const dir = mkdtempSync(join(tmpdir(), 'policy-'));
  const seen: (PolicyOrigin | undefined)[] = [];
  const logger = new RecordingLogger();
  const source = new PolicyObjects({
    kube: user.client,
    node,
    clock: systemClock,
    logger,
    random: () => 0,
    files: textFiles,
    statePath: join(dir, 'policy.json'),
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
    seen,
    logger,
    fault: () => fault,
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
    ])('are rejected by the API server with %s', async (message, spec) => {
      expect(await answer(spec)).toMatch(new RegExp(message));
    });

    it('take effect when a Node label changes, unless the node rejects them and keeps the previous one', async () => {
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
      await expect.poll(() => [own.fault(), own.seen.length], settled).toEqual(['does not suit', 2]);
      await label('a');
      await expect.poll(() => [own.fault(), own.seen.length], settled).toEqual(['', 2]);
      expect((await read('wrong')).metadata.generation).toBe(1);
      await cluster.admin.client.request({ method: 'DELETE', path: `${path}/racks` });
      await expect.poll(() => own.seen.slice(2), settled).toEqual([undefined]);
      expect(own.logger.messages('warn')).toEqual([]);
    });

    it('stay in force after their CustomResourceDefinition is deleted and all policies with it, until one is restored', async () => {
      await using own = follow(driver);
      await create('racks', { nodeSelector: {}, pfs: [] });
      const inForce = { name: 'racks', generation: 1 };
      await expect.poll(() => own.seen.at(-1), settled).toEqual(inForce);
      const { client } = cluster.admin;
      const definitions = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
      const definition = `${definitions}/networkdevicepolicies.netdra.dev`;
      const { metadata, ...rest } = await client.request<V1CustomResourceDefinition>({
        method: 'GET',
        path: definition,
      });
      await client.request({ method: 'DELETE', path: definition });
      await expect.poll(() => own.fault(), settled).not.toBe('');
      expect(own.seen.at(-1)).toEqual(inForce);
      await expect
        .poll(
          () => client.request({ method: 'GET', path: definition }).catch((error: KubeError) => error.code),
          settled,
        )
        .toBe('api-not-found');
      const { name, annotations, labels } = metadata ?? {};
      const body = { ...rest, status: undefined, metadata: { name, annotations, labels } };
      await client.request({ method: 'POST', path: definitions, body });
      await vi.waitFor(async () => expect(await answer({ nodeSelector: {} })).toBe('accepted'), settled);
      await expect.poll(() => own.fault(), settled).toContain('was deleted with its CustomResourceDefinition');
      await create('restored', { nodeSelector: {}, pfs: [] });
      await expect.poll(() => own.seen.at(-1), settled).toEqual({ name: 'restored', generation: 1 });
      expect(own.seen.slice(own.seen.findIndex((origin) => origin !== undefined))).not.toContain(undefined);
    });
  });
}
