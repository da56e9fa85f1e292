import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { InactiveClaims } from '../../../../src/driver/recovery/index.ts';
import { StoredRecords } from '../../../../src/driver/state/index.ts';
import { KubeError, type ResourceClaim } from '../../../../src/framework/kube/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { PluginCalls } from '../../../../src/framework/kubeletplugin/plugin-calls.ts';
import { ClaimMetadata, layouts, MetadataError } from '../../../../src/framework/metadata/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { buildClaim, buildPod, testDriver, testNode } from '../../../doubles/objects.ts';
import { storedAttachment, storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';
import { allocated, DriverBench } from '../claims/driver-bench.ts';

const never = new AbortController().signal;
const everyMs = 60_000;
const pod = buildPod('app');
const podUid = pod.metadata.uid;
const object = buildClaim('nic', { requests: [{ name: 'vf', devices: ['dev-1'] }], pods: [pod] });
const { namespace, name, uid } = object.metadata;
const device = storedDevice({ pciAddress: '0000:01:10.0', pool: testNode });
const stored = storedClaim({ identity: { namespace, name, uid }, podUids: [podUid], devices: [device] });

/** A sandbox of a pod. */
interface Known {
  of: string;
  /** It never had a container. */
  isEmpty?: boolean;
}

/** What the registry of sandboxes knows. */
class KnownSandboxes {
  isFresh = true;
  isListNew = false;
  readonly #sandboxes: Known[];

  constructor(sandboxes: Known[]) {
    this.#sandboxes = sandboxes;
  }

  hasContainers(podUid: string): boolean | 'maybe' {
    const ofPod = this.#sandboxes.filter(({ of }) => of === podUid);
    return ofPod.some(({ isEmpty = false }) => !isEmpty) || (ofPod.length > 0 && this.isListNew ? 'maybe' : false);
  }

  hasPod(podUid: string): boolean {
    return this.#sandboxes.some(({ of }) => of === podUid);
  }
}

/** What becomes of the claim when the API server says this of it. */
async function sweep(
  answer: () => unknown,
  options: {
    sandboxes?: Known[];
    claim?: StoredClaim;
    sweeps?: number;
    isRecorded?: boolean;
    isRefused?: boolean;
    /** Between sweeps, ms. */
    pauseMs?: number;
    isListNew?: boolean;
  } = {},
) {
  const known = new KnownSandboxes(options.sandboxes ?? []);
  known.isListNew = options.isListNew ?? false;
  const claim = options.claim ?? stored;
  const reclaimed: string[] = [];
  const reads: string[] = [];
  const handedOver: string[] = [];
  let notified = 0;
  let checks = 0;
  const logger = new RecordingLogger();
  const clock = new ManualClock();
  const inactive = new InactiveClaims({
    driver: testDriver,
    pool: testNode,
    store: storedClaims(() => [claim]),
    metadata: { isRecorded: () => options.isRecorded ?? true },
    sandboxes: known,
    claims: {
      readClaim: async (_, asked) => {
        reads.push(asked);
        return answer() as ResourceClaim;
      },
    },
    helper: {
      reclaim: async ({ name: asked }, isOver, signal) => {
        const over = await isOver(signal);
        if (over) reclaimed.push(asked);
        return over && !options.isRefused;
      },
      prepareAgain: async ({ name: asked }, isDue, signal) => {
        const due = await isDue(signal);
        if (due) handedOver.push(asked);
        return due && !options.isRefused;
      },
    },
    requestRound: () => notified++,
    requestCheck: () => checks++,
    everyMs,
    clock,
    logger,
  });
  let failure: unknown;
  for (let sweeps = options.sweeps ?? 1; sweeps > 0; sweeps--) {
    failure = await inactive.sweep(never).catch((error: unknown) => error);
    clock.advance(options.pauseMs ?? everyMs);
  }
  return { reclaimed, handedOver, notified, checks, failure, reads, logger, inactive, known, clock };
}

const refuse = (code: ConstructorParameters<typeof KubeError>[0]) => () => {
  throw new KubeError(code, 'said no');
};
const changed = (change: (claim: ResourceClaim) => void) => () => {
  const copy = structuredClone(object) as unknown as ResourceClaim;
  change(copy);
  return copy;
};

describe('InactiveClaims', () => {
  it.each<[string, () => unknown]>([
    ['was deleted', refuse('api-not-found')],
    [
      'was replaced by another claim of the same name',
      changed((claim) => {
        claim.metadata = { ...claim.metadata, uid: 'x' };
      }),
    ],
    ['is no longer allocated', changed((claim) => void delete claim.status?.allocation)],
    ['is reserved for no pod', changed((claim) => void delete claim.status?.reservedFor)],
    [
      'now has a device of another node',
      changed((claim) => {
        for (const result of claim.status?.allocation?.devices?.results ?? []) result.pool = 'node-2';
      }),
    ],
  ])('releases a claim that %s', async (_, answer) => {
    const { reclaimed, logger } = await sweep(answer, { sweeps: 3 });
    expect(reclaimed).toEqual([name]);
    expect(logger.messages('warn')).toEqual(['unpreparing a claim that the kubelet will no longer unprepare']);
  });

  it('waits before it releases a claim, because a kubelet that still needs it would not prepare it again', async () => {
    const { reclaimed, logger } = await sweep(refuse('api-not-found'), { sweeps: 2 });
    expect([reclaimed, logger.messages('warn')]).toEqual([[], []]);
    let asked = 0;
    const wantedMeanwhile = await sweep(() => (asked++ === 0 ? refuse('api-not-found')() : object), { sweeps: 3 });
    expect([asked, wantedMeanwhile.reclaimed]).toEqual([3, []]);
  });

  it('does not release a claim earlier because of additional sweeps', async () => {
    const answer = refuse('api-not-found');
    expect((await sweep(answer, { sweeps: 12, pauseMs: everyMs / 6 })).reclaimed).toEqual([]);
    expect((await sweep(answer, { sweeps: 13, pauseMs: everyMs / 6 })).reclaimed).toEqual([name]);
  });

  it('requests another sweep if releasing a claim fails', async () => {
    const counts = [false, true].map(async (isRefused) => {
      const { reclaimed, notified } = await sweep(refuse('api-not-found'), { sweeps: 3, isRefused });
      return [reclaimed, notified];
    });
    expect(await Promise.all(counts)).toEqual([
      [[name], 0],
      [[name], 1],
    ]);
  });

  it('leaves a claim without devices to the kubelet after a failed prepare has released the devices', async () => {
    const claim = { ...stored, state: 'unpreparing', devices: [] } as StoredClaim;
    const { reclaimed, handedOver } = await sweep(() => object, { claim, sweeps: 3 });
    expect([reclaimed, handedOver]).toEqual([[], []]);
  });

  it('restarts its waiting time after a check that finds the claim needed', async () => {
    const wantedIn = [false, true, false, false, false];
    const answer = () => (wantedIn.shift() === true ? object : refuse('api-not-found')());
    const { inactive, reclaimed } = await sweep(answer, { sweeps: 4 });
    expect(reclaimed).toEqual([]);
    await inactive.sweep(never);
    expect(reclaimed).toEqual([name]);
  });

  it.each<[string, (known: KnownSandboxes) => () => unknown]>([
    ['the API server did not answer', () => refuse('api-unreachable')],
    [
      "the runtime's sandboxes were unknown",
      (known) => {
        known.isFresh = false;
        return refuse('api-not-found');
      },
    ],
  ])('restarts its waiting time after a sweep in which %s', async (_, interrupt) => {
    let answer: () => unknown = refuse('api-not-found');
    const { inactive, reclaimed, known, clock } = await sweep(() => answer(), { sweeps: 2 });
    answer = interrupt(known);
    await inactive.sweep(never).catch(() => undefined);
    clock.advance(10 * everyMs);
    [answer, known.isFresh] = [refuse('api-not-found'), true];
    await inactive.sweep(never);
    expect(reclaimed).toEqual([]);
  });

  it('restarts its waiting time if the claim was passing to another pod', async () => {
    const answers: (() => unknown)[] = [];
    const { inactive, reclaimed, handedOver, clock } = await sweep(() => answers[0]!(), {
      claim: { ...stored, state: 'preparing' },
      sweeps: 0,
    });
    const next = { resource: 'pods', name: 'next', uid: 'next' };
    const passing = changed((claim) => void Object.assign(claim.status ?? {}, { reservedFor: [next] }));
    const over = changed((claim) => void delete claim.status?.reservedFor);
    for (const answer of [passing, passing, over, over]) {
      answers.unshift(answer);
      await inactive.sweep(never);
      clock.advance(everyMs);
      expect([reclaimed, handedOver]).toEqual([[], []]);
    }
    await inactive.sweep(never);
    expect(reclaimed).toEqual([name]);
  });

  it.each([
    'api-unreachable',
    'api-timeout',
    'api-unauthorized',
    'api-forbidden',
    'api-unserved',
    'api-failed',
  ] as const)('releases no claim if the API server cannot be asked: %s', async (code) => {
    const { reclaimed, failure } = await sweep(refuse(code));
    expect(reclaimed).toEqual([]);
    expect(failure).toMatchObject({ code });
  });

  it('ignores pods with containers without asking the API server', async () => {
    const byPod = await sweep(refuse('api-not-found'), { sandboxes: [{ of: podUid }] });
    const attachment = storedAttachment({ podUid: 'other', sandboxId: 's2' });
    const claim = { ...stored, podUids: [], devices: [{ ...device, attachment }] };
    const bySandbox = await sweep(refuse('api-not-found'), { sandboxes: [{ of: 'other' }], claim });
    for (const { reclaimed, reads } of [byPod, bySandbox]) expect([reclaimed, reads]).toEqual([[], []]);
  });

  // Found by the simulation: the next round was a minute away, and a container of the next pod waited at the start gate.
  it('checks a pod without containers again soon if a new list of sandboxes may be incomplete', async () => {
    const sandboxes = [{ of: podUid, isEmpty: true }];
    const { reads, notified } = await sweep(() => object, { sandboxes, isListNew: true });
    expect([reads.length, notified]).toEqual([0, 1]);
  });

  // A sandbox that the runtime was making when it was killed is listed for ever.
  it('asks the API server about a pod whose sandbox has no containers', async () => {
    const sandboxes = [{ of: podUid, isEmpty: true }];
    expect((await sweep(refuse('api-not-found'), { sandboxes, sweeps: 3 })).reclaimed).toEqual([name]);
    const starting = await sweep(() => object, { sandboxes, sweeps: 3 });
    expect([starting.reclaimed, starting.handedOver, starting.reads.length]).toEqual([[], [], 3]);
    expect((await sweep(() => object, { sandboxes, claim: { ...stored, state: 'preparing' } })).handedOver).toEqual([
      name,
    ]);
  });

  it('checks all other claims while one claim is busy or after it fails, and reports the failure', async () => {
    const [first, other] = [1, 2].map(() => ({ ...stored, state: 'preparing' }) as StoredClaim);
    Object.assign(other!, { identity: { ...stored.identity, name: 'other', uid: 'other' } });
    const handled: string[] = [];
    const busy = Promise.withResolvers<void>();
    const inactive = new InactiveClaims({
      driver: testDriver,
      pool: testNode,
      store: { ...storedClaims(() => [first!, other!]), claim: () => stored },
      metadata: { isRecorded: () => true },
      sandboxes: new KnownSandboxes([{ of: podUid }]),
      claims: { readClaim: async () => object as unknown as ResourceClaim },
      helper: {
        reclaim: async () => false,
        prepareAgain: async (claim) => {
          if (claim.uid === uid) {
            await busy.promise;
            throw new MetadataError('metadata-version-unknown', 'the record is newer');
          }
          return handled.push(claim.name) > 0;
        },
      },
      requestRound: () => undefined,
      requestCheck: () => undefined,
      everyMs,
      clock: systemClock,
      logger: new RecordingLogger(),
    });
    const swept = expect(inactive.sweep(never)).rejects.toThrow('the record is newer');
    await expect.poll(() => handled).toEqual(['other']);
    busy.resolve();
    await swept;
  });

  it("does nothing while the runtime's sandboxes are unknown", async () => {
    const { inactive, known, reclaimed, reads } = await sweep(() => object);
    known.isFresh = false;
    await inactive.sweep(never);
    expect([reclaimed, reads.length]).toEqual([[], 1]);
  });

  describe('a claim that is now reserved for another pod', () => {
    const next = buildPod('next');
    const reservedFor = (...pods: (typeof pod)[]) =>
      changed((claim) => {
        const consumers = pods.map(({ metadata }) => ({ resource: 'pods', name: metadata.name, uid: metadata.uid }));
        claim.status = { ...claim.status, reservedFor: consumers };
      });
    /** Allocated anew between the two pods. */
    const withOtherDevices = changed((claim) => {
      Object.assign(claim, reservedFor(next)());
      for (const result of claim.status?.allocation?.devices?.results ?? []) result.device = 'other';
    });

    it.each([
      ['the same devices', reservedFor(next)],
      ['other devices of the node', withOtherDevices],
    ])('is prepared for the new pod, with %s', async (_, answer) => {
      const { reclaimed, handedOver, notified } = await sweep(answer, { sandboxes: [{ of: next.metadata.uid }] });
      expect([reclaimed, handedOver, notified]).toEqual([[], [name], 1]);
    });

    // Found by the simulation: an earlier pod had ended while the driver was restarting, and its reservation ended after the
    // round that follows the runtime's list. The next pod's container waited at the start gate until the regular round.
    it('is checked again soon, for a minute, while it is also reserved for its earlier pod without containers', async () => {
      const both = reservedFor(pod, next);
      const sandboxes = [{ of: next.metadata.uid }];
      const { notified, checks, handedOver } = await sweep(both, { sandboxes, sweeps: 30, pauseMs: 4_000 });
      expect([notified, checks, handedOver]).toEqual([0, 15, []]);
      const elsewhere = await sweep(both, { sweeps: 2 });
      const inUse = await sweep(both, { sandboxes: [...sandboxes, { of: podUid }], sweeps: 2 });
      expect([elsewhere.checks, inUse.checks]).toEqual([0, 0]);
    });

    // Found by the simulation: the pod's container waited at the start gate until the next round, a minute later.
    it.each<[string, () => unknown, { isRefused?: boolean }]>([
      ['the claim could not be prepared', reservedFor(next), { isRefused: true }],
      ['the API server did not answer', refuse('api-unreachable'), {}],
    ])('is tried again soon if %s', async (_, answer, options) => {
      const { notified, logger } = await sweep(answer, { sandboxes: [{ of: next.metadata.uid }], ...options });
      expect([notified, logger.messages('info')]).toEqual([1, []]);
      // What fails for good must not keep rounds coming: each next one would be later, for all claims.
      expect((await sweep(answer, { sandboxes: [{ of: next.metadata.uid }], ...options, sweeps: 20 })).notified).toBe(
        5,
      );
    });

    it('stays with its old pod while that pod reserves it or has containers', async () => {
      const waiting = await sweep(reservedFor(pod, next));
      const running = await sweep(reservedFor(next), { sandboxes: [{ of: podUid }] });
      for (const { handedOver, notified } of [waiting, running]) expect([handedOver, notified]).toEqual([[], 0]);
    });

    it('passes to the new pod even if a sandbox of the old pod is left', async () => {
      const left = { ...device, attachment: storedAttachment({ podUid }) };
      const sandboxes = [{ of: podUid, isEmpty: true }, { of: next.metadata.uid }];
      const claim = { ...stored, devices: [left] };
      expect((await sweep(reservedFor(next), { sandboxes, claim })).handedOver).toEqual([name]);
    });

    // Found by the simulation: the next pod gets no sandbox while this claim holds a device of another claim of its own.
    it.each(['preparing', 'unpreparing'] as const)(
      'is left to the kubelet for three sweeps if its state is %s',
      async (state) => {
        const handedOver = async (answer: () => unknown, sweeps: number) =>
          (await sweep(answer, { claim: { ...stored, state }, sweeps })).handedOver;
        for (const answer of [reservedFor(next), withOtherDevices]) {
          expect(await handedOver(answer, 2)).toEqual([]);
          expect(await handedOver(answer, 3)).toEqual([name]);
        }
      },
    );

    // Found by the simulation: the kubelet makes a sandbox when it takes the claim for prepared, and asks no more.
    it.each(['preparing', 'unpreparing'] as const)(
      'is prepared as soon as the new pod has a sandbox, even if its state is %s',
      async (state) => {
        const sandboxes: Known[] = [{ of: next.metadata.uid }];
        expect((await sweep(reservedFor(next), { claim: { ...stored, state }, sandboxes })).handedOver).toEqual([name]);
        const passed = { ...stored, podUids: [next.metadata.uid], state: 'preparing' as const };
        const { handedOver, notified } = await sweep(reservedFor(next), { claim: passed, sandboxes });
        expect([handedOver, notified]).toEqual([[name], 1]);
      },
    );

    it("is prepared again if the driver stopped before it wrote the claim's metadata", async () => {
      const sandboxes: Known[] = [{ of: podUid }];
      for (const state of ['preparing', 'prepared', 'unpreparing'] as const) {
        const { handedOver, reads } = await sweep(() => object, { sandboxes, claim: { ...stored, state } });
        expect([state, handedOver, reads]).toEqual([state, state === 'preparing' ? [name] : [], []]);
      }
      // As a driver leaves it that has lost the record.
      expect((await sweep(() => object, { sandboxes, isRecorded: false })).handedOver).toEqual([name]);
    });

    it("is not prepared if a second read shows that the new pod's reservation has ended", async () => {
      let asked = 0;
      const { handedOver, notified } = await sweep(() => (asked++ === 0 ? reservedFor(next)() : object));
      expect([asked, handedOver, notified]).toEqual([2, [], 0]);
    });
  });
});

describe('a claim whose pod has a sandbox, with real metadata files', () => {
  /** The claim is prepared, and swept. */
  async function prepareOn(bench: DriverBench, claim: AllocatedClaim, enabled = true) {
    const counts = { reads: 0, handedOver: 0 };
    const claims = {
      readClaim: async () => {
        counts.reads++;
        return structuredClone(claim.object) as ResourceClaim;
      },
    };
    const logger = new RecordingLogger();
    const dirs = { dataDir: join(bench.dir, 'plugins'), cdiDir: bench.cdiDir };
    const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
    const { store } = bench;
    const metadata = new ClaimMetadata({
      driver: testDriver,
      ...dirs,
      layouts: [layouts.v1],
      enabled,
      gate,
      records: new StoredRecords({ store, dataDir: dirs.dataDir }),
    });
    const calls = new PluginCalls(bench.driver, {
      driver: testDriver,
      claims,
      metadata,
      locks: new KeyedMutex(),
      clock: systemClock,
      logger,
    });
    const answers = await calls.nodePrepareResources([claim.identity], { timeoutMs: 45_000, signal: never });
    expect(answers.get(claim.identity.uid)?.error).toBeUndefined();
    counts.reads = 0;
    const inactive = new InactiveClaims({
      driver: testDriver,
      pool: testNode,
      store,
      metadata,
      claims,
      helper: calls,
      sandboxes: new KnownSandboxes(claim.podUids.map((of) => ({ of }))),
      requestRound: () => counts.handedOver++,
      requestCheck: () => undefined,
      everyMs,
      clock: systemClock,
      logger,
    });
    return { inactive, counts, logger };
  }

  // With adminAccess it holds no device, and its metadata is complete at prepare: nothing of it is left to complete.
  it.each([true, false])(
    'is not prepared again if it has only adminAccess, with metadata enabled: %s',
    async (enabled) => {
      using bench = new DriverBench();
      const requests = [{ name: 'watch', devices: [{ device: 'dev-1', adminAccess: true }] }];
      const { inactive, counts, logger } = await prepareOn(bench, allocated('monitor', [], { requests }), enabled);
      for (let n = 0; n < 3; n++) await inactive.sweep(never);
      expect([counts, logger.messages('warn')]).toEqual([{ reads: 0, handedOver: 0 }, []]);
    },
  );
});
