import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DeviceClasses } from '../../../../src/driver/claims/index.ts';
import { onAbort } from '../../../../src/lib/abort.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { ApiServer } from '../../../doubles/api-server.ts';
import { openKube } from '../../../doubles/kube.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';

let stack: AsyncDisposableStack;
let api: ApiServer;
let logger: RecordingLogger;
let classes: DeviceClasses;
beforeEach(async () => {
  stack = new AsyncDisposableStack();
  api = stack.use(await ApiServer.start());
  logger = new RecordingLogger();
  const { resources } = stack.use(openKube(api));
  classes = stack.use(new DeviceClasses({ resources, clock: systemClock, logger }));
});
afterEach(() => stack.disposeAsync());

const objectOf = (name: string, mtu: number) => ({
  apiVersion: 'resource.k8s.io/v1',
  kind: 'DeviceClass',
  metadata: { name },
  spec: { config: [{ opaque: { driver: testDriver, parameters: { mtu } } }] },
});
const knownMtu = (name: string) =>
  (classes.known(name)?.spec.config?.[0]?.opaque?.parameters as { mtu: number } | undefined)?.mtu;
const read = (name: string) => classes.read(name, new AbortController().signal);
const requests = () => api.log.map(({ method, isWatch }) => (isWatch ? 'WATCH' : method));

describe('DeviceClasses', () => {
  it('sends no request before a class is needed', async () => {
    api.create(objectOf('a', 1400));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(api.log).toEqual([]);
  });

  it('lists classes once and follows their changes', async () => {
    api.create(objectOf('a', 1400));
    expect(classes.known('a')).toBeUndefined();
    await vi.waitFor(() => expect(knownMtu('a')).toBe(1400));
    await vi.waitFor(() => expect(requests()).toEqual(['GET', 'WATCH']));
    api.create(objectOf('b', 1500));
    await vi.waitFor(() => expect(knownMtu('b')).toBe(1500));
    api.delete('DeviceClass', 'a');
    await vi.waitFor(() => expect(classes.known('a')).toBeUndefined());
    expect(requests()).toEqual(['GET', 'WATCH']);
  });

  it('reads a class once for several concurrent claims', async () => {
    api.create(objectOf('a', 1400));
    const found = await Promise.all([read('a'), read('a'), read('a')]);
    expect(found.map(({ metadata }) => metadata.name)).toEqual(['a', 'a', 'a']);
    expect(requests()).toEqual(['GET']);
    await expect(read('none')).rejects.toMatchObject({ code: 'api-not-found' });
  });

  it('reads single classes if it lacks permission to list them, and logs that', async () => {
    api.create(objectOf('a', 1400));
    using _ = api.failNext(/GET .*\/deviceclasses$/, 403, { times: Infinity });
    expect(classes.known('a')).toBeUndefined();
    await vi.waitFor(() =>
      expect(logger.messages('warn')).toContainEqual(expect.stringContaining('cannot list DeviceClasses')),
    );
    expect((await read('a')).metadata.name).toBe('a');
  });

  it('waits at most 20 s for a class, and stops earlier if the caller aborts', async () => {
    const clock = new ManualClock();
    const asked: string[] = [];
    const resources = {
      readDeviceClass(name: string, signal?: AbortSignal) {
        asked.push(name);
        return new Promise((_, reject) => onAbort(signal, () => reject(signal?.reason)));
      },
    };
    await using own = new DeviceClasses({ resources: resources as never, clock, logger, random: () => 0 });
    const over = new AbortController();
    const [first, second] = [over, new AbortController()].map(({ signal }) => own.read('a', signal));
    over.abort(new Error('the call is over'));
    await expect(first).rejects.toThrow('the call is over');
    clock.advance(20_000);
    await expect(second).rejects.toMatchObject({
      code: 'api-timeout',
      retriable: true,
      message: 'DeviceClass a: no answer from the API server within 20000 ms',
    });
    expect(asked).toEqual(['a']);
    void own.read('a', over.signal).catch(() => undefined);
    expect(asked).toEqual(['a', 'a']);
  });

  it('starts its watch at a fresh list, since an older list could miss changes', async () => {
    const clock = new ManualClock();
    const lists: PromiseWithResolvers<{ metadata: { resourceVersion: string }; items: [] }>[] = [];
    const watched: (string | undefined)[] = [];
    const resources = {
      list: () => (lists[lists.push(Promise.withResolvers()) - 1] as (typeof lists)[number]).promise,
      watch({ query }: { query?: { resourceVersion?: string } }) {
        watched.push(query?.resourceVersion);
        throw new Error('gone');
      },
    };
    await using own = new DeviceClasses({ resources: resources as never, clock, logger, random: () => 0 });
    own.known('a');
    lists[0]?.resolve({ metadata: { resourceVersion: '10' }, items: [] });
    await vi.waitFor(() => expect(clock.sleeping()).toHaveLength(1));
    expect(watched).toEqual(['10']);
    clock.advance(60_000);
    await vi.waitFor(() => expect(lists).toHaveLength(2));
    lists[1]?.reject(new Error('not yet'));
    await vi.waitFor(() => expect(clock.sleeping()).toHaveLength(1));
    clock.advance(60_000);
    await vi.waitFor(() => expect(lists).toHaveLength(3));
    expect(watched).toEqual(['10']);
    lists[2]?.resolve({ metadata: { resourceVersion: '20' }, items: [] });
    await vi.waitFor(() => expect(watched).toEqual(['10', '20']));
  });
});
