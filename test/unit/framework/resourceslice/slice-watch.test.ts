import { expect, it } from 'vitest';
import { KubeError, type WatchEvent } from '../../../../src/framework/kube/index.ts';
import type { ResourceSlice, SliceApi } from '../../../../src/framework/resourceslice/index.ts';
import { SliceWatch } from '../../../../src/framework/resourceslice/slice-watch.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';

/** A watch whose events a test sends, by resource version. */
function startBench() {
  const { readable, writable } = new TransformStream<WatchEvent<ResourceSlice>>();
  const writer = writable.getWriter();
  const api: Pick<SliceApi, 'watch'> = {
    watch(_, signal) {
      signal.addEventListener('abort', () => writer.abort(signal.reason).catch(() => undefined));
      return readable;
    },
  };
  let changes = 0;
  const options = {
    clock: new ManualClock(),
    logger: new RecordingLogger(),
    random: () => 0,
    onChange: () => changes++,
  };
  const watch = new SliceWatch(api as SliceApi, options);
  watch.follow('10');
  return {
    watch,
    changes: () => changes,
    async send(resourceVersion: string) {
      const object = { metadata: { name: 's', resourceVersion } } as ResourceSlice;
      await writer.write({ type: 'MODIFIED', object });
      // Until it was read.
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

it('SliceWatch holds back change events until pending writes are confirmed', async () => {
  const bench = startBench();
  const known = new Set<string>();
  const hold = () => bench.watch.hold(({ metadata }) => known.has(metadata.resourceVersion ?? ''));
  const first = hold();
  // The event of a write overtakes its answer.
  await bench.send('11');
  known.add('11');
  first[Symbol.dispose]();
  expect(bench.changes()).toBe(0);

  const second = hold();
  await bench.send('12');
  expect(bench.changes()).toBe(0);
  second[Symbol.dispose]();
  expect(bench.changes()).toBe(1);
  await bench.watch[Symbol.asyncDispose]();
});

it('SliceWatch reports an expired version once, and watches again only from the version of the next list', async () => {
  const clock = new ManualClock();
  const opened: string[] = [];
  const api: Pick<SliceApi, 'watch'> = {
    watch(resourceVersion, signal) {
      opened.push(resourceVersion);
      if (resourceVersion === '10') throw new KubeError('api-expired', 'too old resource version: 10');
      const { readable, writable } = new TransformStream<WatchEvent<ResourceSlice>>();
      signal.addEventListener('abort', () => void writable.abort(signal.reason).catch(() => undefined));
      return readable;
    },
  };
  let changes = 0;
  const watch = new SliceWatch(api as SliceApi, {
    clock,
    logger: new RecordingLogger(),
    random: () => 0,
    onChange: () => changes++,
  });
  watch.follow('10');
  const passMinutes = async () => {
    for (let second = 0; second < 300; second++) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(1_000);
    }
  };
  await passMinutes();
  expect([opened, changes]).toEqual([['10'], 1]);
  watch.follow('20');
  await passMinutes();
  expect([opened, changes]).toEqual([['10', '20'], 1]);
  await watch[Symbol.asyncDispose]();
});

it('SliceWatch ends while it waits for the next list', async () => {
  const clock = new ManualClock();
  const { promise: lost, resolve } = Promise.withResolvers<void>();
  const api: Pick<SliceApi, 'watch'> = {
    watch() {
      throw new KubeError('api-expired', 'too old resource version: 10');
    },
  };
  const options = { clock, logger: new RecordingLogger(), random: () => 0, onChange: resolve };
  const watch = new SliceWatch(api as SliceApi, options);
  watch.follow('10');
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(10_000);
  await lost;
  await watch[Symbol.asyncDispose]();
});
