import { describe, expect, it, vi } from 'vitest';
import { FollowedList, KubeClient, type ObjectMeta, plainList } from '../../../../src/framework/kube/index.ts';
import { type Clock, systemClock } from '../../../../src/lib/clock.ts';
import { kubeConfigOf } from '../../../doubles/kube.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { buildNode } from '../../../doubles/objects.ts';

const path = '/api/v1/nodes';

/** @param clientClock clock of the client, whose deadlines would hide the pauses of the list */
async function startBench(clientClock: Clock = systemClock) {
  const bench = await startKubeBench();
  const { api, clock, logger } = bench;
  const kube = bench.stack.use(new KubeClient(kubeConfigOf(api), { clock: clientClock, userAgent: 'netdra/test' }));
  const query = { fieldSelector: 'metadata.name=a' };
  let delay = Promise.resolve();
  const request: typeof kube.request = async (wanted) => {
    const answer = await kube.request(wanted);
    await delay;
    return answer as never;
  };
  const list = bench.stack.use(
    new FollowedList<{ metadata: ObjectMeta }>({
      source: plainList({ request, watch: kube.watch.bind(kube) }, { path, query, metadataOnly: true }),
      what: 'nodes',
      clock,
      logger,
      random: () => 0.5,
    }),
  );
  const labels = () => list.objects?.get('a')?.metadata.labels;
  const setLabel = (value: string) =>
    api.edit('Node', 'a', ({ metadata }) => Object.assign(metadata, { labels: { x: value } }));
  const delayLists = (until: Promise<void>) => {
    delay = until;
  };
  /** Lets these pauses pass, each as soon as the list waits for nothing else. */
  const pass = async (...pausesMs: number[]) => {
    for (const pauseMs of pausesMs) {
      await vi.waitFor(() => expect(clock.sleeping()).toEqual([pauseMs]));
      clock.advance(pauseMs);
    }
  };
  return { ...bench, kube, list, labels, setLabel, delayLists, pass };
}

describe('FollowedList', () => {
  it('lists selected objects once and then watches them', async () => {
    await using own = await startBench();
    for (const name of ['a', 'b']) own.api.create(buildNode(name) as never);
    own.list.start();
    await own.list.whenAnswered();
    expect([...(own.list.objects?.keys() ?? [])]).toEqual(['a']);
    await own.api.until(() => own.api.watchCount === 1);
    own.setLabel('1');
    await vi.waitFor(() => expect(own.labels()).toEqual({ x: '1' }));
    own.api.delete('Node', 'a');
    await vi.waitFor(() => expect(own.list.objects?.size).toBe(0));
    // What a write returns does not bring a deleted object back.
    own.list.update({ metadata: { name: 'a' } });
    expect(own.list.objects?.size).toBe(0);
    expect(own.api.requests(path).map(({ isWatch }) => isWatch)).toEqual([false, true]);
  });

  it('distinguishes objects of one name in several namespaces', async () => {
    await using own = await startBench();
    const states = '/apis/sriovnetwork.openshift.io/v1/sriovnetworknodestates';
    const { client: kube, clock, logger, stack } = own;
    const source = plainList<{ metadata: ObjectMeta }>(kube, { path: states });
    const list = stack.use(new FollowedList({ source, what: 'states', clock, logger, random: () => 0 }));
    const create = (namespace: string) =>
      own.api.create({
        apiVersion: 'sriovnetwork.openshift.io/v1',
        kind: 'SriovNetworkNodeState',
        metadata: { name: 'a', namespace },
      });
    create('x');
    list.start();
    await own.api.until(() => own.api.watchCount === 1);
    create('y');
    await vi.waitFor(() => expect([...(list.objects?.keys() ?? [])]).toEqual(['x/a', 'y/a']));
    own.api.delete('SriovNetworkNodeState', 'a', 'y');
    await vi.waitFor(() => expect([...(list.objects?.keys() ?? [])]).toEqual(['x/a']));
  });

  it('takes the object from the response of a write, unless the watch has reported a later change', async () => {
    await using own = await startBench();
    own.api.create(buildNode('a') as never);
    own.list.start();
    await own.api.until(() => own.api.watchCount === 1);
    type Labelled = { metadata: ObjectMeta };
    const write = (x: string) => {
      const body = { metadata: { labels: { x } } };
      const contentType = 'application/merge-patch+json';
      return own.kube.request<Labelled>({ method: 'PATCH', path: `${path}/a`, body, contentType });
    };
    const [first, second] = [await write('1'), await write('2')];
    await vi.waitFor(() => expect(own.labels()?.x).toBe('2'));
    own.list.update(first);
    expect(own.labels()?.x).toBe('2');
    const { resourceVersion } = second.metadata;
    own.list.update({ metadata: { ...second.metadata, labels: { x: '3' }, resourceVersion: `${resourceVersion}0` } });
    expect(own.labels()?.x).toBe('3');
  });

  it('keeps the objects while the API server is unreachable, and lists them again after a gap', async () => {
    await using own = await startBench();
    own.api.create(buildNode('a') as never);
    own.list.start();
    await own.api.until(() => own.api.watchCount === 1);
    using away = own.api.failNext(path, 503, { times: 99 });
    own.api.endWatches();
    own.setLabel('missed');
    own.api.compact();
    await vi.waitFor(() => expect(own.clock.sleeping()).toEqual([6_000]));
    // The next watch fails, and after a pause of 1 s and half of 10 s so does the list.
    own.clock.advance(6_000);
    await own.pass(6_000);
    await vi.waitFor(() => expect(own.list.failure).toMatchObject({ httpStatus: 503 }));
    expect(own.list.objects?.size).toBe(1);
    away[Symbol.dispose]();
    await vi.waitFor(() => {
      own.clock.advance(30_000);
      expect(own.labels()).toEqual({ x: 'missed' });
    });
    expect(own.list.failure).toBeUndefined();
    expect(own.logger.messages('warn').slice(0, 2)).toEqual([
      'cannot watch nodes: polling them instead',
      'cannot list nodes',
    ]);
  });

  it('retries soon once an unreachable API server is back, even if it first answers 403', async () => {
    await using own = await startBench();
    own.api.create(buildNode('a') as never);
    const away = own.api.failNext(path, 503, { times: Infinity });
    own.list.start();
    await own.pass(1_500, 3_000, 6_000, 12_000, 24_000, 48_000, 90_000);
    await vi.waitFor(() => expect(own.clock.sleeping()).toEqual([90_000]));
    away[Symbol.dispose]();
    own.api.failNext(path, 403, { times: 2 });
    await own.pass(90_000, 1_500, 3_000);
    await vi.waitFor(() => expect(own.list.objects?.size).toBe(1));
  });

  it('retries less often if every request is rejected', async () => {
    await using own = await startBench();
    own.api.failNext(path, 403, { times: Infinity });
    own.list.start();
    await own.pass(1_500, 3_000, 6_000, 12_000, 24_000, 48_000, 96_000, 192_000, 384_000, 450_000);
  });

  it('reconnects soon after a single disconnect, and ever later if connections keep being short', async () => {
    await using own = await startBench();
    own.list.start();
    const cut = async (afterMs: number, pauseMs: number) => {
      await own.api.until(() => own.api.watchCount === 1);
      own.clock.advance(afterMs);
      own.api.dropConnections();
      await own.pass(pauseMs);
    };
    for (let times = 0; times < 3; times++) await cut(300_000, 6_000);
    for (const pauseMs of [7_000, 9_000, 13_000]) await cut(1_000, pauseMs);
    await cut(300_000, 6_000);
  });

  it('does not list again when a proxy cuts each watch after half a minute', async () => {
    const clientClock = new ManualClock();
    await using own = await startBench(clientClock);
    own.api.create(buildNode('a') as never);
    own.list.start();
    await own.api.until(() => own.api.watchCount === 1);
    for (const label of ['1', '2', '3']) {
      own.setLabel(label);
      await poll(() => own.labels()).toEqual({ x: label });
      clientClock.advance(30_000);
      own.api.dropConnections();
      await poll(() => own.clock.sleeping()).toEqual([6_000]);
      // Changes that are made meanwhile are not missed.
      own.setLabel(`${label} later`);
      own.clock.advance(6_000);
      await poll(() => own.labels()).toEqual({ x: `${label} later` });
    }
    expect(own.api.requests(path).filter(({ isWatch }) => !isWatch)).toHaveLength(1);
    expect(own.logger.messages('warn')).toEqual([]);
  });

  it('keeps its version of an object if a new list contains an older version', async () => {
    await using own = await startBench();
    own.api.create(buildNode('a') as never);
    own.list.start();
    await own.api.until(() => own.api.watchCount === 1);
    using away = own.api.failNext(path, 503, { times: 1 });
    own.api.endWatches();
    await own.pass(6_000);
    await vi.waitFor(() => expect(own.clock.sleeping()).toEqual([6_000]));
    away[Symbol.dispose]();
    // The list is answered late, and has what there was when it was asked for.
    const { promise: late, resolve: answer } = Promise.withResolvers<void>();
    const seen = own.api.requests(path).length;
    own.delayLists(late);
    own.clock.advance(6_000);
    await own.api.until(() => own.api.requests(path).length > seen);
    await new Promise((resolve) => setTimeout(resolve, 50));
    own.setLabel('new');
    await new Promise((resolve) => setTimeout(resolve, 50));
    answer();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await vi.waitFor(() => expect(own.labels()).toEqual({ x: 'new' }));
  });
});
