import { randomUUID } from 'node:crypto';
import type { V1DeviceAllocationConfiguration } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkAllocation, DeviceClasses } from '../../../../src/driver/claims/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { ApiServer } from '../../../doubles/api-server.ts';
import { deviceClassesOf } from '../../../doubles/device-classes.ts';
import { openKube } from '../../../doubles/kube.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { type ClaimOptions, testDriver } from '../../../doubles/objects.ts';
import { allocated, DriverBench, fromClaim, fromClass } from './driver-bench.ts';

const stack = new AsyncDisposableStack();
let api: ApiServer;
let check: (claim: AllocatedClaim, signal?: AbortSignal) => Promise<void>;
beforeAll(async () => {
  api = stack.use(await ApiServer.start());
  const { resources } = stack.use(openKube(api));
  const classes = stack.use(new DeviceClasses({ resources, clock: systemClock, logger: new RecordingLogger() }));
  check = (claim, signal = new AbortController().signal) => checkAllocation(testDriver, classes, claim, signal);
});
afterAll(() => stack[Symbol.asyncDispose]());

const outcome = (claim: AllocatedClaim) => check(claim).then(() => 'as it should be', explain);
const configOf = ({ object }: AllocatedClaim) => object.status!.allocation!.devices!.config!;

/** A claim and its classes, as they are stored. */
function store(name: string, config = [fromClass({ vf: { vlan: 100 } }), fromClaim({ mtu: 1400 })]): AllocatedClaim {
  const claim = allocated(name, ['dev-1'], { config });
  for (const each of deviceClassesOf(claim.object as never)) api.create(each);
  return claim;
}

const twoRequests = ['a', 'b'].map((name, index) => ({ name, devices: [`dev-${index + 1}`] }));
const ofClass = fromClass({ vf: { vlan: 100 } });
const shared = fromClaim({ mtu: 1400 }, ['a', 'b']);

describe('checkAllocation', () => {
  it('accepts an allocation with the configurations of class and claim', async () => {
    expect(await outcome(store('good'))).toBe('as it should be');
  });

  it.each<[string, (claim: AllocatedClaim) => void]>([
    ['a configuration that the class lacks', (claim) => configOf(claim).push(fromForged())],
    ['a configuration instead of that of the class', (claim) => configOf(claim).splice(0, 1, fromForged())],
    ['no configuration of the class', (claim) => configOf(claim).splice(0, 1)],
    [
      'a configuration that the claim lacks',
      (claim) => configOf(claim).splice(1, 1, { ...fromForged(), source: 'FromClaim' }),
    ],
  ])('rejects an allocation with %s', async (what, forge) => {
    const claim = store(what.replaceAll(' ', '-'));
    forge(claim);
    expect(await outcome(claim)).toMatch(
      /^the allocation of claim default\/\S+ has a configuration of request vf that (DeviceClass \S+|its specification) does not have/,
    );
  });

  it.each<[string, Partial<ClaimOptions>, (config: V1DeviceAllocationConfiguration[]) => unknown]>([
    [
      'an entry of the claim for each request that it names',
      { requests: twoRequests, config: [ofClass, shared] },
      repeatEach,
    ],
    [
      'each of several entries of the claim',
      { requests: twoRequests, config: [ofClass, shared, fromClaim({ rdma: false }), fromClaim({ mtu: 1500 }, ['a'])] },
      repeatEach,
    ],
    [
      'an entry for the subrequests of firstAvailable',
      {
        requests: twoRequests.map((each) => ({ ...each, subrequest: 'small' })),
        config: [ofClass, fromClaim({ mtu: 1400 }, ['a/small', 'b', 'b/small'])],
      },
      repeatEach,
    ],
    [
      'all entries of the claim and of a class with several entries',
      { config: [fromClass({ mtu: 1400 }), fromClass({ vf: { vlan: 100 } }), fromClaim({ rdma: false })] },
      (config) => config.push(...config),
    ],
  ])('accepts an allocation that repeats %s', async (_what, options, repeat) => {
    const claim = allocated(`repeats-${randomUUID()}`, ['dev-1'], options);
    for (const each of deviceClassesOf(claim.object as never)) api.create(each);
    expect(await outcome(claim)).toBe('as it should be');
    repeat(configOf(claim));
    expect(await outcome(claim)).toBe('as it should be');
  });

  it('accepts an allocation whose class contains a configuration entry twice', async () => {
    const config = [fromClass({ mtu: 1400 }), fromClass({ mtu: 1500 }), fromClass({ mtu: 1400 })];
    expect(await outcome(store('twice', config))).toBe('as it should be');
  });

  it.each(['FromClass', 'FromClaim'] as const)(
    'rejects an allocation that repeats an earlier entry %s at its end, where the entry would override others',
    async (source) => {
      const entries = [fromClaim({ mtu: 1400 }), fromClaim({ mtu: 1500 })].map((entry) => ({ ...entry, source }));
      const claim = store(`reordered-${source.toLowerCase()}`, [ofClass, ...entries]);
      configOf(claim).push(configOf(claim)[1]!);
      expect(await outcome(claim)).toContain('has a configuration of request vf that ');
    },
  );

  it('takes classes from its watch, and reads a class again before it rejects a claim', async () => {
    const claim = store('watched');
    expect(await outcome(claim)).toBe('as it should be');
    const before = api.log.length;
    expect(await outcome(claim)).toBe('as it should be');
    expect(api.log.length).toBe(before);

    configOf(claim).splice(0, 1, fromForged());
    expect(await outcome(claim)).toContain('that DeviceClass class-of-watched-vf does not have');
    expect(api.log.slice(before).map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /apis/resource.k8s.io/v1/deviceclasses/class-of-watched-vf',
    ]);
  });

  it('reports a deleted class as retryable', async () => {
    const claim = allocated('orphan', ['dev-1'], { config: [fromClass({ mtu: 1400 })] });
    await expect(check(claim)).rejects.toMatchObject({ code: 'class-unreadable', retriable: true });
    expect(await outcome(claim)).toContain('DeviceClass class-of-orphan-vf does not exist any more');
  });

  it.each([
    [403, 'the driver needs verbs get, list and watch for deviceclasses'],
    [500, undefined],
  ])('reports a missing permission only if the API server forbids reading the class: %s', async (status, hint) => {
    const claim = store(`hidden-${status}`);
    using _ = api.failNext(/GET .*\/deviceclasses/, status, { times: Infinity });
    const error = await check(claim).catch((cause: unknown) => cause);
    expect(error).toMatchObject({ code: 'class-unreadable', retriable: true });
    expect(error).toHaveProperty('hint', hint);
  });

  it('fails at once when the kubelet cancels a call that waits for a busy API server', async () => {
    using bench = new DriverBench();
    bench.checkAllocation = (each, signal) => check(each, signal);
    const claim = store('busy');
    using _ = api.failNext(/GET .*\/deviceclasses/, 429, { times: Infinity, retryAfterSeconds: 60 });
    const over = new AbortController();
    const results = bench.prepareAll([claim], over.signal);
    await api.until(() => api.requests(/class-of-busy/).length > 0);
    over.abort(new Error('the call is over'));
    expect((await results).get(claim.identity.uid)).toMatchObject({
      error: { code: 'class-unreadable', cause: { message: 'the call is over' } },
    });
  });

  it('checks a claim before anything is prepared, and does not check a prepared claim again', async () => {
    using bench = new DriverBench();
    const claim = store('prepared');
    bench.checkAllocation = (each) => check(each);
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    api.delete('DeviceClass', 'class-of-prepared-vf');
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    const other = allocated('unprepared', ['dev-2'], { config: [fromClass({ mtu: 1400 })] });
    expect(await bench.prepare(other)).toMatchObject({ error: { code: 'class-unreadable' } });
    expect(bench.control.calls.some((call) => call.includes('0000:00:00.2'))).toBe(false);
  });
});

/** As the schedulers of Kubernetes 1.34 to 1.36, for entries that name two requests. */
function repeatEach(config: V1DeviceAllocationConfiguration[]): void {
  config.splice(0, config.length, ...config.flatMap((entry) => (entry.requests?.length ? [entry, entry] : [entry])));
}

function fromForged() {
  const { source, parameters } = fromClass({ attach: 'cni', cni: { type: 'macvlan', master: 'eno1' } });
  return { source, opaque: { driver: testDriver, parameters } };
}
