import { describe, expect } from 'vitest';
import { type NodeView, NodeViewWriter, readNodeView, type StoredView } from '../../../../src/driver/nodeview/index.ts';
import { NetdraError } from '../../../../src/lib/errors.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { largestSources } from './sources.ts';

const kind = 'NodeNetworkDevices';
const hourMs = 3_600_000;

async function startBench() {
  const kube = await startKubeBench();
  const { api, client, clock, logger } = kube;
  const errors: unknown[] = [];
  const state = {
    view: readNodeView(largestSources()),
    date: '2026-01-01T00:00:00Z',
    fault: undefined as Error | undefined,
    nodeUid: 'uid-of-node',
    knownNodeUid: 'uid-of-node',
  };
  const open = () =>
    kube.stack.use(
      new NodeViewWriter(client, {
        driver: testDriver,
        node: testNode,
        clock,
        logger,
        now: () => new Date(state.date),
        random: () => 0.5,
        nodeUid: async () => state.nodeUid,
        knownNodeUid: () => state.knownNodeUid,
        read: () => {
          if (state.fault !== undefined) throw state.fault;
          return state.view;
        },
        onError: (error) => void errors.push(error),
      }),
    );
  return {
    ...kube,
    errors,
    state,
    open,
    writer: open(),
    change: (more: Partial<NodeView>) => {
      state.view = { ...state.view, ...more };
    },
    /** Waits until the writer sleeps for this long. */
    async asleep(ms: number) {
      await poll(() => clock.sleeping()).toEqual([ms]);
    },
    requests: (method: string) =>
      api.requests((request) => request.method === method && request.path.includes('nodenetworkdevices')),
    stored: () => api.get<{ metadata: { ownerReferences: object[] }; status: StoredView }>(kind, testNode),
  };
}

const it = itWith(startBench);

describe('NodeViewWriter', () => {
  it('writes the changes of some seconds together, to one object owned by the Node', async ({ own }) => {
    own.writer.note();
    expect(own.clock.sleeping()).toEqual([6_000]);
    own.change({ problems: ['late'] });
    own.writer.note();
    own.clock.advance(6_000);
    await poll(own.stored).toBeDefined();
    const { conditions, ...view } = own.state.view;
    expect(own.stored()).toMatchObject({
      metadata: { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: testNode, uid: 'uid-of-node' }] },
      status: { ...view, conditions: conditions.map((each) => ({ ...each, lastTransitionTime: own.state.date })) },
    });
    expect(own.requests('PATCH')).toHaveLength(1);
    expect(own.requests('PATCH')[0]?.query).toEqual({ fieldManager: testDriver, force: 'true' });
  });

  it('sends no request while nothing changes', async ({ own }) => {
    own.writer.note();
    own.clock.advance(6_000);
    await poll(() => own.logger.messages('debug')).toHaveLength(1);
    // Another instance of the driver may write until this one is alone: one look.
    own.clock.advance(120_000);
    await new Promise(setImmediate);
    own.writer.note();
    await own.asleep(6_000);
    own.clock.advance(6_000);
    await poll(() => own.requests('GET')).toHaveLength(2);
    const before = own.api.log.length;
    for (let hours = 0; hours < 10; hours++) {
      own.state.date = `2026-01-01T0${hours}:00:00Z`;
      own.clock.advance(hourMs);
      await new Promise(setImmediate);
      own.writer.note();
      expect(own.clock.sleeping()).toEqual([]);
    }
    expect(own.api.log.length).toBe(before);
    expect(own.requests('PATCH')).toHaveLength(1);
  });

  it('writes at most every ten seconds, and keeps transition times of conditions', async ({ own }) => {
    own.writer.note();
    own.clock.advance(6_000);
    await poll(() => own.logger.messages('debug')).toHaveLength(1);
    await new Promise(setImmediate);
    own.state.date = '2026-01-01T01:00:00Z';
    const [policy, listed, slices] = own.state.view.conditions as [object, object, object];
    own.change({ conditions: [{ ...policy, status: 'True' }, { ...listed, message: 'other' }, slices] as never });
    own.writer.note();
    await own.asleep(10_000);
    own.clock.advance(10_000);
    await poll(() => own.requests('PATCH')).toHaveLength(2);
    await poll(() => own.stored()?.status.conditions.map((each) => each.lastTransitionTime.slice(11, 13))).toEqual([
      '01',
      '00',
      '00',
    ]);
    expect(own.stored()?.status.conditions[1]?.message).toBe('other');
  });

  it('writes nothing after a restart if the object is current, and replaces the object of an earlier Node', async ({
    own,
  }) => {
    own.writer.note();
    own.clock.advance(6_000);
    await poll(() => own.requests('PATCH')).toHaveLength(1);
    own.state.date = '2026-01-02T00:00:00Z';
    for (const patches of [1, 2]) {
      await own.open()[Symbol.asyncDispose]();
      const next = own.open();
      next.note();
      const reads = own.requests('GET').length;
      own.clock.advance(6_000);
      await poll(() => own.requests('GET').length).toBe(reads + 1);
      await poll(() => own.requests('PATCH')).toHaveLength(patches);
      await next[Symbol.asyncDispose]();
      own.api.edit(kind, testNode, ({ metadata }) => {
        metadata.ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name: testNode, uid: 'earlier' }];
      });
    }
  });

  it('makes a Node that was registered again the owner of the object', async ({ own }) => {
    own.writer.note();
    own.clock.advance(6_000);
    await poll(() => own.logger.messages('debug')).toHaveLength(1);
    await new Promise(setImmediate);
    own.state.nodeUid = 'uid-of-next';
    own.change({ problems: ['late'] });
    own.writer.note();
    await own.asleep(10_000);
    own.clock.advance(10_000);
    await poll(() => own.requests('PATCH')).toHaveLength(2);
    await poll(own.stored).toMatchObject({ metadata: { ownerReferences: [{ uid: 'uid-of-next' }] } });
  });

  it('writes an unchanged view again after the Node was registered again', async ({ own }) => {
    own.writer.note();
    own.clock.advance(6_000);
    await poll(() => own.logger.messages('debug')).toHaveLength(1);
    await new Promise(setImmediate);
    // The garbage collector removes what belonged to the earlier Node.
    own.api.delete(kind, testNode);
    own.state.nodeUid = 'uid-of-next';
    own.writer.note();
    expect(own.clock.sleeping()).toEqual([]);
    own.state.knownNodeUid = 'uid-of-next';
    own.writer.note();
    await own.asleep(10_000);
    own.clock.advance(10_000);
    await poll(own.stored).toMatchObject({ metadata: { ownerReferences: [{ uid: 'uid-of-next' }] } });
  });

  it.for<[number, number, string]>([
    [404, 450_000, 'install the CustomResourceDefinition of the chart'],
    [403, 3_000, 'compare role and admission policies with those of the chart'],
    [500, 3_000, ''],
  ])('logs status %i once, and retries after %i ms', async ([status, pauseMs, remedy], { own }) => {
    const failing = own.api.failNext(/nodenetworkdevices/, status, { times: 2 });
    own.writer.note();
    own.clock.advance(6_000);
    await own.asleep(pauseMs);
    own.clock.advance(pauseMs);
    await own.asleep(status === 404 ? pauseMs : 2 * pauseMs);
    const warnings = own.logger.lines.filter(({ level }) => level === 'warn');
    expect(warnings.map(({ message }) => message)).toEqual([
      'cannot write NodeNetworkDevices: the API does not show the current devices of this node',
    ]);
    expect(String(warnings[0]?.fields.remedy ?? '')).toContain(remedy);
    expect(own.errors).toHaveLength(2);
    failing[Symbol.dispose]();
    own.clock.advance(2 * pauseMs);
    await poll(own.stored).toBeDefined();
  });

  it('retries less often once it was forbidden several times in a row', async ({ own }) => {
    own.api.failNext(/nodenetworkdevices/, 403, { times: Infinity });
    own.writer.note();
    own.clock.advance(6_000);
    for (const pauseMs of [3_000, 6_000, 12_000, 24_000, 48_000, 450_000, 450_000]) {
      await own.asleep(pauseMs);
      own.clock.advance(pauseMs);
    }
  });

  it('retries if the store cannot be read', async ({ own }) => {
    own.state.fault = new NetdraError('store-unusable', 'disk I/O error');
    own.writer.note();
    own.clock.advance(6_000);
    await own.asleep(3_000);
    own.state.fault = undefined;
    own.clock.advance(3_000);
    await poll(own.stored).toBeDefined();
  });
});
