import { describe, expect } from 'vitest';
import { DeviceConditions } from '../../../../src/driver/devices/device-conditions.ts';
import { deviceHealth } from '../../../../src/driver/devices/device-health.ts';
import { SriovOperator } from '../../../../src/driver/devices/sriov-operator.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';

const operatorNamespace = 'openshift-sriov-network-operator';
const statesPath = `/apis/sriovnetwork.openshift.io/v1/namespaces/${operatorNamespace}/sriovnetworknodestates`;
const pf = '0000:3b:00.0';
const removed = '0000:5e:00.0';
const other = '0000:5f:00.0';

/** States of the operator, as its annotations and status have them. */
interface Work {
  desired?: string;
  current?: string;
  syncStatus?: string;
}

function stateOf(
  { desired = 'Idle', current = 'Idle', syncStatus = 'Succeeded' }: Work,
  name = testNode,
  namespace = operatorNamespace,
) {
  const prefix = 'sriovnetwork.openshift.io';
  const annotations = { [`${prefix}/desired-state`]: desired, [`${prefix}/current-state`]: current };
  return {
    apiVersion: `${prefix}/v1`,
    kind: 'SriovNetworkNodeState',
    metadata: { name, namespace, annotations },
    spec: { interfaces: [{ pciAddress: pf, numVfs: 4, externallyManaged: true }, { pciAddress: 'x' }, null] },
    status: {
      syncStatus,
      interfaces: [
        { pciAddress: removed, numVfs: 4 },
        { pciAddress: other, totalvfs: 64 },
      ],
    },
  };
}

async function startBench() {
  const bench = await startKubeBench();
  const { client: kube, clock, logger, stack } = bench;
  const operator = stack.use(
    new SriovOperator({ kube, node: testNode, namespace: operatorNamespace, clock, logger, random: () => 0 }),
  );
  const conditions = new DeviceConditions(
    { clock, driver: testDriver, held: () => new Map(), unrestored: () => [], operatorWork: () => operator.work },
    { hung: () => [], active: () => [], policy: () => ({}) as never },
  );
  return { ...bench, operator, conditions };
}

describe('SriovOperator', () => {
  const it = itWith(startBench);

  it.for<[string, Work, string | undefined]>([
    ['is idle', {}, undefined],
    [
      'drains the node',
      { desired: 'Drain_Required', current: 'Draining', syncStatus: 'InProgress' },
      'drains the node',
    ],
    ['configures the drained node', { desired: 'Drain_Required', current: 'DrainComplete' }, 'drains the node'],
    ['has not finished draining', { current: 'DrainComplete' }, 'drains the node'],
    ['configures the node without draining', { syncStatus: 'InProgress' }, 'configures the node'],
    ['waits for its turn to drain', { desired: 'Drain_Required', syncStatus: 'InProgress' }, undefined],
    ['waits for its turn to reboot', { desired: 'Reboot_Required', syncStatus: 'InProgress' }, undefined],
    ['has failed', { syncStatus: 'Failed' }, undefined],
  ])('knows that the operator %s', async ([, work, expected], { own: { api, operator } }) => {
    api.create(stateOf(work) as never);
    await operator.start();
    const functions = new Set([pf, removed]);
    expect(operator.work).toEqual(expected === undefined ? undefined : { what: expected, functions });
  });

  it("ignores states in other namespaces than the operator's", async ({ own: { api, operator } }) => {
    api.create(stateOf({}) as never);
    api.create(stateOf({ current: 'Draining' }, testNode, 'tenant') as never);
    await operator.start();
    expect(operator.work).toBeUndefined();
    api.delete('SriovNetworkNodeState', testNode, operatorNamespace);
    await poll(() => api.watchCount).toBe(1);
    expect(operator.work).toBeUndefined();
  });

  it('follows the state of its own node only', async ({ own: { api, operator } }) => {
    api.create(stateOf({ current: 'Draining' }, 'elsewhere') as never);
    await operator.start();
    expect(operator.work).toBeUndefined();
    api.create(stateOf({ current: 'Draining' }) as never);
    await expect.poll(() => operator.work?.what).toBe('drains the node');
    api.update(stateOf({}) as never);
    await expect.poll(() => operator.work).toBeUndefined();
  });

  it('reports no operator state if the operator is not installed', async ({ own: { api, operator } }) => {
    using _ = api.failNext(`GET ${statesPath}`, 404, { times: 99 });
    await operator.start();
    expect(operator.work).toBeUndefined();
  });

  it.for([
    [404, 'forgets', undefined],
    [403, 'keeps', 'drains the node'],
  ] as const)(
    'after the answer %i, %s the last state, and logs the failure once',
    async ([status, _, expected], { own }) => {
      const { api, operator, clock, logger } = own;
      api.create(stateOf({ current: 'Draining' }) as never);
      await operator.start();
      await api.until(() => api.watchCount === 1);
      const away = api.failNext(`GET ${statesPath}`, status, { times: Infinity });
      api.endWatches();
      // The next watch fails, then list after list.
      for (let failures = 1; failures <= 4; failures++) {
        await poll(() => clock.sleeping().length).toBe(1);
        clock.advance(600_000);
      }
      await poll(() => clock.sleeping().length).toBe(1);
      expect(operator.work?.what).toBe(expected);
      const lost = logger.messages('warn').filter((each) => each.startsWith('cannot list '));
      expect(lost).toHaveLength(1);
      away[Symbol.dispose]();
      using _restarts = api.failNext(`GET ${statesPath}`, 503);
      clock.advance(600_000);
      await poll(() => logger.messages('warn').filter((each) => each.startsWith('cannot list ')).length).toBe(2);
      expect(operator.work?.what).toBe(expected);
      await poll(() => clock.sleeping().length).toBe(1);
      clock.advance(600_000);
      await poll(() => operator.work?.what).toBe('drains the node');
    },
  );

  it('taints only VFs of PFs that the operator manages, and does not report them as unhealthy', async ({ own }) => {
    const { api, operator, conditions } = own;
    const idle = conditions.fingerprint();
    api.create(stateOf({ current: 'Draining' }) as never);
    await operator.start();
    const taints = [{ key: `${testDriver}/operator-at-work`, effect: 'NoSchedule' }];
    expect(conditions.taintsOf({ pciAddress: '0000:3b:02.0', pfAddress: pf })).toEqual({ taints });
    expect(conditions.taintsOf({ pciAddress: '0000:5f:02.0', pfAddress: other })).toEqual({});
    // The driver publishes its slices again.
    expect(conditions.fingerprint()).not.toBe(idle);
    const found = conditions.of({ pciAddress: '0000:3b:02.0', pfAddress: pf });
    const remedy = 'if the operator is gone, delete the SriovNetworkNodeState of this node';
    expect(found).toMatchObject([{ message: expect.stringMatching(`operator drains the node.*${remedy}`) }]);
    expect(deviceHealth(testNode, ['vf'], [], new Map([['vf', found]]))).toMatchObject([{ health: 'healthy' }]);
  });
});
