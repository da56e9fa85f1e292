import { describe, expect } from 'vitest';
import { type EventReport, EventWriter, FailureEvents, type KubeEvent } from '../../../../src/driver/events/index.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { storedAttachment, storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';

type StoredEvent = KubeEvent & { series?: { count: number; lastObservedTime: string } };

const microTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

async function startBench() {
  const kube = await startKubeBench();
  const { api, client, clock, logger } = kube;
  const errors: unknown[] = [];
  const onError = (error: unknown) => errors.push(error);
  const options = { controller: testDriver, instance: testNode, clock, logger, onError };
  const writer = kube.stack.use(new EventWriter(client, options));
  return {
    ...kube,
    writer,
    errors,
    events: () => api.objects<StoredEvent>('Event'),
    counts: () => api.objects<StoredEvent>('Event').map(({ series }) => series?.count ?? 1),
    /** Waits until the writer knows that so many were written. */
    async written(count: number) {
      await poll(() => logger.messages('debug').filter((message) => message === 'event written')).toHaveLength(count);
      await new Promise(setImmediate);
    },
  };
}

const it = itWith(startBench);

function report(note: string, more: Partial<EventReport> = {}): EventReport {
  const regarding = { apiVersion: 'v1', kind: 'Pod', namespace: 'apps', name: 'web-0', uid: 'u-1' };
  return { regarding, type: 'Warning', reason: 'DeviceNotAttached', action: 'Attaching', note, ...more };
}

describe('EventWriter', () => {
  it("writes an event to its object's namespace, in the required form", async ({ own: bench }) => {
    bench.writer.report(report('no VF'));
    await poll(bench.events).toHaveLength(1);
    expect(bench.events()).toEqual([
      {
        ...report('no VF'),
        apiVersion: 'events.k8s.io/v1',
        kind: 'Event',
        metadata: expect.objectContaining({ namespace: 'apps', name: expect.stringMatching(/^web-0\.[0-9a-f]{16}$/) }),
        eventTime: expect.stringMatching(microTime),
        reportingController: testDriver,
        reportingInstance: testNode,
      },
    ]);
  });

  it('writes events on cluster-scoped objects to the namespace default', async ({ own: bench }) => {
    const regarding = { apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'node-1' };
    bench.writer.report(report('it hangs', { regarding }));
    await poll(bench.events).toHaveLength(1);
    expect(bench.events()[0]).toMatchObject({ metadata: { namespace: 'default' }, regarding });
    expect(bench.events()[0]?.regarding).not.toHaveProperty('namespace');
  });

  it('counts repetitions in one event, which it updates rarely', async ({ own: bench }) => {
    bench.writer.report(report('no VF'));
    await bench.written(1);
    for (let n = 0; n < 20; n++) bench.writer.report(report('no VF'));
    await poll(() => bench.clock.sleeping()).toEqual([30_000]);
    expect(bench.api.requests('PATCH /apis/events.k8s.io')).toHaveLength(0);
    bench.clock.advance(30_000);
    await poll(bench.counts).toEqual([21]);
    expect(bench.events()[0]?.series?.lastObservedTime).toMatch(microTime);
    expect(bench.api.requests('PATCH /apis/events.k8s.io')).toHaveLength(1);
  });

  it('creates a new event for a repetition after a quiet period', async ({ own: bench }) => {
    bench.writer.report(report('no VF'));
    await bench.written(1);
    bench.clock.advance(360_001);
    bench.writer.report(report('no VF'));
    await poll(bench.counts).toEqual([1, 1]);
    expect(bench.writer.size).toBe(1);
  });

  it('creates a new event if the server dropped the old event', async ({ own: bench }) => {
    bench.writer.report(report('no VF'));
    await bench.written(1);
    const [first] = bench.events();
    bench.api.delete('Event', first?.metadata.name ?? '', 'apps');
    bench.writer.report(report('no VF'));
    bench.writer.report(report('no VF'));
    await poll(() => bench.clock.sleeping()).toEqual([30_000]);
    bench.clock.advance(30_000);
    await poll(bench.counts).toEqual([2]);
    expect(bench.events()[0]?.metadata.name).not.toBe(first?.metadata.name);
  });

  it('limits the number of different events of each object separately', async ({ own: bench }) => {
    for (let n = 0; n < 30; n++) bench.writer.report(report(`failure ${n}`));
    const regarding = { ...report('').regarding, uid: 'u-2', name: 'web-1' };
    bench.writer.report(report('another pod', { regarding }));
    await bench.written(11);
    expect(bench.events()).toHaveLength(11);
    bench.clock.advance(300_000);
    for (let n = 30; n < 40; n++) bench.writer.report(report(`failure ${n}`));
    await poll(bench.events).toHaveLength(12);
  });

  it('limits namespaces to 100 events each once 250 are tracked, and reserves 50 for the Node', async ({
    own: bench,
  }) => {
    const accepted = (namespace: string) => {
      const names = Array.from({ length: 150 }, (_, index) => `${namespace}-${index}`);
      const pods = names.map((name) => ({ apiVersion: 'v1', kind: 'Pod', namespace, name, uid: name }));
      return pods.filter((regarding) => bench.writer.report(report('no VF', { regarding }))).length;
    };
    expect(['a', 'b', 'c', 'd', 'e', 'f'].map(accepted)).toEqual([150, 100, 100, 100, 0, 0]);
    const regarding = { apiVersion: 'v1', kind: 'Node', name: testNode, uid: testNode };
    const onNode = Array.from({ length: 10 }, (_, index) => report(`PF ${index} hangs`, { regarding }));
    expect(onNode.filter((each) => bench.writer.report(each))).toHaveLength(10);
    expect(bench.writer.size).toBe(460);
  });

  it('reports the loss of the VFs of 64 pods in one namespace at once, and of 200 pods in two passes', async ({
    own: bench,
  }) => {
    const claims = Array.from({ length: 200 }, (_, index) => {
      const pod = { podNamespace: 'apps', podUid: `pod-${index}`, podName: `web-${index}` };
      const identity = { namespace: 'apps', name: `net-${index}`, uid: `claim-${index}` };
      return storedClaim({ identity, devices: [storedDevice({ attachment: storedAttachment(pod) })] });
    });
    const failures = new FailureEvents(bench.writer);
    failures.devicesFound('node-1', [], claims.slice(0, 64));
    expect(bench.writer.size).toBe(128);
    failures.devicesFound('node-1', [], claims);
    await bench.written(250);
    bench.clock.advance(360_001);
    for (let pass = 0; pass < 2; pass++) failures.devicesFound('node-1', [], claims);
    await bench.written(400);
    expect(bench.events().every(({ reason, series }) => reason === 'DeviceLost' && series === undefined)).toBe(true);
    expect(new Set(bench.events().map(({ regarding }) => regarding.uid)).size).toBe(400);
  });

  it('truncates notes to the API limit between characters', async ({ own: bench }) => {
    bench.writer.report(report('é'.repeat(800)));
    await poll(bench.events).toHaveLength(1);
    const note = bench.events()[0]?.note ?? '';
    expect(note).toMatch(/^é{500,}…$/u);
    expect(Buffer.byteLength(note)).toBeLessThanOrEqual(1024);
  });

  it('retries while the server is unreachable, and gives up eventually', async ({ own: bench }) => {
    using _ = bench.api.failNext('POST /apis/events.k8s.io', 500, { times: 100 });
    bench.writer.report(report('no VF'));
    for (const delayMs of [1_000, 2_000, 4_000, 8_000, 16_000]) {
      await poll(() => bench.clock.sleeping()).toContain(delayMs);
      bench.clock.advance(delayMs);
    }
    await poll(() => bench.writer.size).toBe(0);
    expect(bench.api.requests('POST /apis/events.k8s.io')).toHaveLength(6);
    expect(bench.logger.messages('warn')).toEqual(['cannot write event']);
  });

  it('logs once that it lacks permission to write events, and does not retry', async ({ own: bench }) => {
    using _ = bench.api.failNext('POST /apis/events.k8s.io', 403, { times: 100 });
    for (let n = 0; n < 5; n++) bench.writer.report(report(`failure ${n}`));
    await poll(() => bench.api.requests('POST /apis/events.k8s.io')).toHaveLength(5);
    await poll(() => bench.writer.size).toBe(0);
    expect(bench.logger.messages('warn')).toEqual(['cannot write event']);
    expect(bench.logger.lines.find(({ level }) => level === 'warn')?.fields.reason).toContain('role lacks this');
    expect(bench.errors).toMatchObject(Array(5).fill({ code: 'api-forbidden' }));
  });

  it('does not log events for a namespace that is being deleted', async ({ own: bench }) => {
    using _ = bench.api.failNext('POST /apis/events.k8s.io', 403, { reason: 'NamespaceTerminating' });
    bench.writer.report(report('no VF'));
    await poll(() => bench.api.requests('POST /apis/events.k8s.io')).toHaveLength(1);
    await poll(() => bench.writer.size).toBe(0);
    expect(bench.logger.messages('warn')).toEqual([]);
    expect(bench.errors).toEqual([]);
  });

  it('treats an event as written when the server created it but the response was lost', async ({ own: bench }) => {
    using _ = bench.api.failNext('POST /apis/events.k8s.io', 409);
    bench.writer.report(report('no VF'));
    await bench.written(1);
    expect(bench.logger.messages('warn')).toEqual([]);
  });

  it('counts an event that arrives while the previous write is being completed', async ({ own: bench }) => {
    for (let microtasks = 0; microtasks < 40; microtasks++) {
      const clock = new ManualClock();
      let written = 0;
      const request = async () => ++written as never;
      const { logger } = bench;
      await using writer = new EventWriter({ request }, { controller: 'c', instance: 'i', clock, logger });
      writer.report(report('no VF'));
      for (let n = 0; n < microtasks; n++) await undefined;
      writer.report(report('no VF'));
      await new Promise(setImmediate);
      // At once, or when the first one is old enough.
      expect([written, clock.sleeping().length]).toEqual(written === 2 ? [2, 0] : [1, 1]);
    }
  });

  it('returns at once, and can be stopped, while the server hangs', async () => {
    const bench = await startBench();
    using _ = bench.api.hang('POST /apis/events.k8s.io');
    bench.writer.report(report('no VF'));
    await poll(() => bench.api.requests('POST /apis/events.k8s.io')).toHaveLength(1);
    await bench[Symbol.asyncDispose]();
    expect(bench.events()).toEqual([]);
  });
});
