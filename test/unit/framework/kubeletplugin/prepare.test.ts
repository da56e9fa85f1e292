import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { runInNewContext } from 'node:vm';
import { status } from '@grpc/grpc-js';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { describe, expect } from 'vitest';
import type { ClaimIdentity, PrepareResult } from '../../../../src/framework/kubeletplugin/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { DraClient } from '../../../doubles/kubelet-dra-client.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { type Behaviour, preparedDevice, startBench } from './bench.ts';

const it = itWith(() => startBench());

const results = (claims: { identity: ClaimIdentity }[], result: (name: string) => PrepareResult) =>
  new Map(claims.map(({ identity }) => [identity.uid, result(identity.name)]));

describe('NodePrepareResources', () => {
  it('reads 16 claims in parallel directly from the API server (requirement 3.1)', async ({ own: bench }) => {
    const claims = Array.from({ length: 16 }, (_, n) => bench.addPod(`c-${n}`).wire);
    for (let round = 0; round < 2; round++) {
      const before = bench.api.log.length;
      const hanging = bench.api.hang('/resourceclaims/');
      const call = bench.kubelet.client(testDriver).nodePrepareResources(claims);
      // All of them go out before the first answer is there.
      await bench.api.until(() => bench.api.log.length === before + claims.length);
      hanging[Symbol.dispose]();
      await call;
      const gets = bench.api.log.slice(before);
      expect(gets.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(
        claims.map(({ name }) => `GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/${name}`).sort(),
      );
    }
  });

  it.each([
    ['is missing', undefined, /get resource claims: retrieve claim default\/a: .*not found/],
    ['is not allocated', { allocated: false }, /get resource claims: claim default\/a not allocated$/],
    [
      'has another UID and no allocation',
      { uid: 'another', allocated: false },
      /get resource claims: claim default\/a not allocated$/,
    ],
    ['got replaced', { uid: 'another' }, /get resource claims: claim default\/a got replaced$/],
    ['is reserved for no pod', { pods: [] }, /get resource claims: claim default\/a is not reserved for any pod$/],
  ])('fails the whole call, with code Unknown, when a claim %s (requirement 3.1)', async (_what, stored, message) => {
    const called: string[] = [];
    await using bench = await startBench({
      prepareResourceClaims: async (claims) => {
        called.push(...claims.map(({ identity }) => identity.name));
        return results(claims, () => ({ devices: [] }));
      },
    });
    const good = bench.addPod('good');
    const uid = 'asked-for';
    if (stored !== undefined) bench.addPod('a', { uid, ...stored });
    const target = { namespace: 'default', name: 'a', uid };
    await expect(bench.kubelet.client(testDriver).nodePrepareResources([good.wire, target])).rejects.toMatchObject({
      code: status.UNKNOWN,
      details: expect.stringMatching(message),
    });
    expect(called).toEqual([]);
  });

  it('prepares a claim that is being deleted but is still reserved for its pod', async ({ own: bench }) => {
    const { pod } = bench.addPod('a');
    bench.api.edit<ResourceV1ResourceClaim>('ResourceClaim', 'a', ({ metadata }) => {
      metadata!.deletionTimestamp = new Date();
    });
    await bench.kubelet.prepare(pod);
    expect(bench.kubelet.claimInfo('default', 'a')?.prepared).toBe(true);
  });

  it("passes the driver the claim's identity, pods and allocation", async () => {
    const seen: object[] = [];
    await using bench = await startBench({
      prepareResourceClaims: async (claims) => {
        seen.push(...claims);
        return results(claims, () => ({ devices: [] }));
      },
    });
    const { pod, claim, wire } = await bench.preparePod('a');
    expect(seen).toMatchObject([
      {
        identity: wire,
        podClaimName: undefined,
        podUids: [pod.metadata.uid],
        results: [{ request: 'vf', driver: testDriver, pool: 'node-1', device: 'dev-a' }],
        object: { metadata: { uid: claim.metadata.uid }, spec: claim.spec },
      },
    ]);
  });

  it('treats a driver result with `error: undefined` as success', async () => {
    // As authors from Go write it, who return devices and error together.
    const error: Error | undefined = undefined;
    const devices = [preparedDevice('dev-a', { cdiDeviceIds: ['example.com/vf=a'] })];
    await using bench = await startBench({
      prepareResourceClaims: async (claims) => results(claims, () => ({ devices, error })),
    });
    const { wire } = bench.addPod('a');
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire]);
    expect(claims[wire.uid]).toMatchObject({ error: '', devices: [{ deviceName: 'dev-a' }] });
    expect(claims[wire.uid]?.devices[0]?.cdiDeviceIds).toContain('example.com/vf=a');
  });

  it.each<[string, unknown, string]>([
    ['an error', { error: new Error('no such VF') }, 'no such VF'],
    ['an error together with devices', { devices: [], error: new Error('no such VF') }, 'no such VF'],
    ['no devices and an error that is undefined', { error: undefined }, 'neither an error nor a list of devices'],
    ['no devices and an error that is null', { error: null }, 'neither an error nor a list of devices'],
    ['devices that are not a list', { devices: 'dev-a' }, 'neither an error nor a list of devices'],
    ['devices that are null', { devices: [null] }, 'a device is not an object'],
    ['nothing', null, 'the driver gave no result'],
    ['a string as error', { error: 'device busy' }, 'device busy'],
    ['an error without a prototype', { error: Object.assign(Object.create(null), { message: 'busy' }) }, 'busy'],
    ['an error of another realm', { error: runInNewContext('new Error("from afar")') }, 'from afar'],
    ['an error without a message', { error: new Error('') }, 'Error'],
    [
      'a string instead of requests',
      { devices: [{ ...preparedDevice('dev-a'), requests: 'vf' }] },
      'requests of device dev-a',
    ],
    ['a number as a name', { devices: [{ ...preparedDevice('dev-a'), deviceName: 7 }] }, 'deviceName of a device'],
    ['a number as shareId', { devices: [{ ...preparedDevice('dev-a'), shareId: 5 }] }, 'shareId of a device'],
    [
      'mistyped metadata',
      { devices: [{ ...preparedDevice('dev-a'), metadata: 'defered' }] },
      'metadata of device dev-a',
    ],
    ['null for metadata', { devices: [{ ...preparedDevice('dev-a'), metadata: null }] }, 'metadata of device dev-a'],
  ])('fails only the claim for which the driver returns %s (requirement 3.1)', async (_what, result, text) => {
    await using bench = await startBench({
      prepareResourceClaims: async (claims) =>
        results(claims, (name) => (name === 'bad' ? (result as PrepareResult) : { devices: [] })),
    });
    const [good, bad] = ['good', 'bad'].map((name) => bench.addPod(name).wire);
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([good!, bad!]);
    expect(claims[bad!.uid]).toMatchObject({ error: expect.stringContaining(text), devices: [] });
    expect(claims[good!.uid]).toMatchObject({ error: '', devices: [{ deviceName: 'dev-good' }] });
  });

  it.each([undefined, {}, []])('fails the call with a clear error if the driver returns %j', async (returned) => {
    const broken = async () => returned as never;
    await using bench = await startBench({ prepareResourceClaims: broken, unprepareResourceClaims: broken });
    const { wire } = bench.addPod('a');
    const client = bench.kubelet.client(testDriver);
    const message = 'the driver did not return a Map with a result for each claim';
    await expect(client.nodePrepareResources([wire])).rejects.toThrow(`prepare resource claims: ${message}`);
    await expect(client.nodeUnprepareResources([wire])).rejects.toThrow(`unprepare resource claims: ${message}`);
  });

  it("keeps a claim's metadata even if one call names the claim twice", async ({ own: bench }) => {
    const { wire } = bench.addPod('a');
    const client = bench.kubelet.client(testDriver);
    const once = await client.nodePrepareResources([wire]);
    expect(await client.nodePrepareResources([wire, wire])).toEqual(once);
    expect(once.claims[wire.uid]?.devices[0]?.cdiDeviceIds).toHaveLength(1);
  });

  it.each([
    ['has no pool', { poolName: '' }, /a device has no pool or no name/],
    ['has no name', { deviceName: '' }, /a device has no pool or no name/],
    ['is for another request', { requests: ['x'] }, /is for request x, which is not allocated/],
    ['was not allocated', { deviceName: 'dev-z' }, /device \S+\/node-1\/dev-z is not allocated to the claim/],
    ['has a share that was not allocated', { shareId: 's' }, /device \S+\/node-1\/dev-a@s is not allocated/],
    ['has an invalid CDI device ID', { cdiDeviceIds: ['vfio'] }, /"vfio" is not a CDI device id, vendor\/class=name/],
  ])('fails the claim if a device of the driver %s (requirement 3.1)', async (_what, device, message) => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a', device)] });
    const { wire } = bench.addPod('a');
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire]);
    expect(claims[wire.uid]?.error).toMatch(message);
    expect(claims[wire.uid]?.error).toContain('the driver returned a wrong result for claim default/a');
  });

  it('returns exactly one entry per claim, whatever the driver returns (requirement 3.1)', async () => {
    await using bench = await startBench({
      prepareResourceClaims: async () => new Map([['unknown', { devices: [] }]]),
      unprepareResourceClaims: async () => new Map([['unknown', undefined]]),
    });
    const { wire } = bench.addPod('a');
    const client = bench.kubelet.client(testDriver);
    for (const answer of [await client.nodePrepareResources([wire]), await client.nodeUnprepareResources([wire])]) {
      expect(answer.claims).toMatchObject({ [wire.uid]: { error: 'the driver gave no result' } });
      expect(Object.keys(answer.claims)).toEqual([wire.uid]);
    }
    expect(bench.logger.messages('warn')).toEqual(
      Array(2).fill('the driver returned results for claims that the call did not name'),
    );
  });

  it('returns the base names of subrequests to the kubelet (requirement 2.3)', async ({ own: bench }) => {
    const requests = [{ name: 'vf', subrequest: 'large', devices: ['dev-1'] }];
    await bench.preparePod('a', { requests });
    expect(bench.kubelet.claimInfo('default', 'a')?.devices.get(testDriver)).toMatchObject([{ requestNames: ['vf'] }]);
  });

  it("passes a device's share on with v1, and omits it with v1beta1 (requirement 2.3)", async ({ own: bench }) => {
    const shareID = '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001';
    const { wire } = bench.addPod('a', { requests: [{ name: 'vf', devices: [{ device: 'dev-1', shareID }] }] });
    using old = new DraClient(join(bench.dataDir(), 'dra.sock'), 'v1beta1.DRAPlugin');
    const [now, before] = [
      await bench.kubelet.client(testDriver).nodePrepareResources([wire]),
      await old.nodePrepareResources([wire]),
    ];
    expect(now.claims[wire.uid]?.devices).toMatchObject([{ deviceName: 'dev-1', shareId: shareID }]);
    expect(before.claims[wire.uid]?.devices).toMatchObject([{ deviceName: 'dev-1' }]);
    expect(before.claims[wire.uid]?.devices[0]).not.toHaveProperty('shareId');
  });

  it('returns two allocated shares of one device as two devices', async ({ own: bench }) => {
    const shares = ['0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001', '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0002'];
    const requests = shares.map((shareID, n) => ({ name: `nic-${n}`, devices: [{ device: 'dev-1', shareID }] }));
    const { wire } = bench.addPod('a', { requests });
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire]);
    expect(claims[wire.uid]?.devices).toMatchObject(
      shares.map((shareId, n) => ({ requestNames: [`nic-${n}`], deviceName: 'dev-1', shareId })),
    );
  });

  it('adds a missing share ID if the claim has one share of the device, and fails if the claim has several', async () => {
    await using bench = await startBench({ devices: [preparedDevice('dev-1', { requests: [] })] });
    const requests = (...shares: string[]) => [
      { name: 'vf', devices: shares.map((shareID) => ({ device: 'dev-1', shareID })) },
    ];
    const [one, two] = [['s1'], ['s1', 's2']].map(
      (shares, n) => bench.addPod(`c-${n}`, { requests: requests(...shares) }).wire,
    );
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([one!, two!]);
    expect(claims[one!.uid]?.devices).toMatchObject([{ deviceName: 'dev-1', shareId: 's1' }, { shareId: 's1' }]);
    expect(claims[two!.uid]?.error).toMatch(/node-1\/dev-1 is allocated in several shares, but has no shareId/);
  });

  it('serves v1beta1 beside v1 for prepare and unprepare (requirement 2.5)', async ({ own: bench }) => {
    const { wire } = bench.addPod('a');
    using old = new DraClient(join(bench.dataDir(), 'dra.sock'), 'v1beta1.DRAPlugin');
    expect((await old.nodePrepareResources([wire])).claims[wire.uid]).toMatchObject({ error: '', devices: [{}] });
    expect((await old.nodeUnprepareResources([wire])).claims[wire.uid]).toMatchObject({ error: '' });
    expect(bench.cdiSpecs()).toEqual([]);
  });

  it('numbers each call, and logs the number in all lines of the call', async ({ own: bench }) => {
    for (const name of ['a', 'b']) await bench.preparePod(name);
    const lines = bench.logger.lines.filter(({ message }) => message === 'prepared a claim');
    expect(lines.map(({ fields }) => fields)).toMatchObject([
      { requestId: 1, method: 'NodePrepareResources', claim: 'default/a', devices: 1 },
      { requestId: 2, method: 'NodePrepareResources', claim: 'default/b', devices: 1 },
    ]);
  });
});

/** A driver whose calls end when the test says so, in the order in which they came. */
function heldDriver() {
  const calls: { names: string[]; signal: AbortSignal; finish: () => void }[] = [];
  let running = 0;
  let most = 0;
  const hold = async (names: string[], signal: AbortSignal) => {
    most = Math.max(most, ++running);
    await new Promise<void>((finish) => calls.push({ names, signal, finish }));
    running--;
  };
  const behaviour: Behaviour = {
    prepareResourceClaims: async (claims, { signal }) => {
      await hold(
        claims.map(({ identity }) => identity.name),
        signal,
      );
      return results(claims, () => ({ devices: [] }));
    },
    unprepareResourceClaims: async (claims, { signal }) => {
      await hold(
        claims.map(({ name }) => name),
        signal,
      );
      return new Map(claims.map(({ uid }) => [uid, undefined]));
    },
  };
  return { calls, behaviour, most: () => most };
}

describe('concurrent calls', () => {
  it('run prepare and unprepare one at a time in order of arrival (requirement 3.1)', async () => {
    const { calls, behaviour, most } = heldDriver();
    await using bench = await startBench(behaviour);
    const client = bench.kubelet.client(testDriver);
    const claims = ['a', 'b', 'c'].map((name) => bench.addPod(name).wire);
    const running = [client.nodePrepareResources([claims[0]!])];
    await expect.poll(() => calls).toHaveLength(1);
    const unprepared = client.nodeUnprepareResources([claims[1]!]);
    await systemClock.sleep(50);
    running.push(client.nodePrepareResources([claims[2]!]));
    for (let n = 0; n < 3; n++) {
      await expect.poll(() => calls).toHaveLength(n + 1);
      await systemClock.sleep(20);
      calls[n]?.finish();
    }
    await Promise.all([...running, unprepared]);
    expect(calls.map(({ names }) => names)).toEqual([['a'], ['b'], ['c']]);
    expect(most()).toBe(1);
  });

  it("hold the driver's claim locks until the files of these claims are written", async () => {
    const { calls, behaviour } = heldDriver();
    const locks = new KeyedMutex();
    await using bench = await startBench(behaviour, { locks, serialize: false });
    const client = bench.kubelet.client(testDriver);
    const { wire } = bench.addPod('a');
    const held = await locks.acquire('default_a');
    const running = client.nodePrepareResources([wire]);
    await expect.poll(() => locks.waiting).toBe(1);
    const hook = locks.run('default_a', async () => bench.claimDirs());
    held[Symbol.dispose]();
    await expect.poll(() => calls).toHaveLength(1);
    expect(locks.waiting).toBe(1);
    calls[0]?.finish();
    expect(await hook).toEqual(['default_a']);
    await running;
  });

  it('read their claims without waiting for each other (requirement 3.1)', async () => {
    const { calls, behaviour } = heldDriver();
    await using bench = await startBench(behaviour);
    const client = bench.kubelet.client(testDriver);
    const [first, second] = ['a', 'b'].map((name) => bench.addPod(name).wire);
    const running = [client.nodePrepareResources([first!])];
    await expect.poll(() => calls).toHaveLength(1);
    running.push(client.nodePrepareResources([second!]));
    await expect.poll(() => bench.api.log.filter(({ path }) => path.endsWith('/b'))).toHaveLength(1);
    calls[0]?.finish();
    await expect.poll(() => calls).toHaveLength(2);
    calls[1]?.finish();
    await Promise.all(running);
  });

  it("return before the kubelet's 45 s are over, and name the slow step (requirement 3.2)", async () => {
    const clock = new ManualClock();
    const { calls, behaviour } = heldDriver();
    await using bench = await startBench(behaviour, { clock });
    const client = bench.kubelet.client(testDriver);
    const [first, second] = ['a', 'b'].map((name) => bench.addPod(name).wire);
    const slow = client.nodePrepareResources([first!]);
    await expect.poll(() => calls).toHaveLength(1);
    const behind = client.nodePrepareResources([second!]);
    await expect
      .poll(() => bench.api.log.filter(({ path, endedMs }) => path.endsWith('/b') && endedMs))
      .toHaveLength(1);
    // Until the call has read the answer, and waits for its turn.
    for (let turn = 0; turn < 100; turn++) await setImmediate();
    const refusals = Promise.all([
      expect(slow).rejects.toThrow(
        /NodePrepareResources did not end in time: deadline of 4[12]\d{3}(\.\d+)? ms passed/,
      ),
      expect(behind).rejects.toThrow(/serialize gRPC: other calls, or other work on the claim, have not ended/),
    ]);
    clock.advance(41_000);
    expect(calls[0]?.signal.aborted).toBe(false);
    clock.advance(1_001);
    await refusals;
    expect(calls[0]?.signal.aborted).toBe(true);
    // The driver ignores the abort: its turn lasts until it ends, and no other call gets in between.
    const third = client.nodePrepareResources([second!]);
    await systemClock.sleep(50);
    expect(calls).toHaveLength(1);
    calls[0]?.finish();
    await expect.poll(() => calls).toHaveLength(2);
    calls[1]?.finish();
    expect((await third).claims[second!.uid]?.error).toBe('');
  });

  it('return earlier for a caller with a shorter deadline', async () => {
    const clock = new ManualClock();
    const { calls, behaviour } = heldDriver();
    await using bench = await startBench(behaviour, { clock });
    const { wire } = bench.addPod('a');
    using client = new DraClient(join(bench.dataDir(), 'dra.sock'), 'v1.DRAPlugin', 30_000);
    const refused = expect(client.nodePrepareResources([wire])).rejects.toThrow(/did not end in time/);
    await expect.poll(() => calls).toHaveLength(1);
    clock.advance(26_000);
    expect(calls[0]?.signal.aborted).toBe(false);
    clock.advance(2_001);
    await refused;
    calls[0]?.finish();
  });

  it('continue after the kubelet disconnects, and end before the kubelet calls again', async () => {
    const { calls, behaviour } = heldDriver();
    // Our own time stands still: it is the caller who ends the call.
    await using bench = await startBench(behaviour, { clock: new ManualClock() });
    const { wire } = bench.addPod('a');
    const client = new DraClient(join(bench.dataDir(), 'dra.sock'));
    const refused = expect(client.nodePrepareResources([wire], 1_000)).rejects.toThrow(/DEADLINE_EXCEEDED/);
    await expect.poll(() => calls).toHaveLength(1);
    await refused;
    client[Symbol.dispose]();
    await systemClock.sleep(100);
    expect(calls[0]?.signal.aborted).toBe(false);
    calls[0]?.finish();
    await expect.poll(() => bench.logger.messages()).toContain('prepared a claim');
    expect(bench.cdiSpecs()).toHaveLength(1);
  });

  it('are dropped while queued if the kubelet disconnects', async () => {
    const { calls, behaviour } = heldDriver();
    // Our own time stands still: it is the caller who ends the call.
    await using bench = await startBench(behaviour, { clock: new ManualClock() });
    const [first, second] = ['a', 'b'].map((name) => bench.addPod(name).wire);
    const slow = bench.kubelet.client(testDriver).nodePrepareResources([first!]);
    await expect.poll(() => calls).toHaveLength(1);
    using client = new DraClient(join(bench.dataDir(), 'dra.sock'));
    await expect(client.nodePrepareResources([second!], 100)).rejects.toThrow(/DEADLINE_EXCEEDED/);
    await expect.poll(() => bench.logger.messages('error')).toEqual(['call of the kubelet failed']);
    calls[0]?.finish();
    await slow;
    expect(calls).toHaveLength(1);
  });
});

describe('a NodePrepareResources call', () => {
  it.each([
    ['prepare', 'nodePrepareResources'],
    ['unprepare', 'nodeUnprepareResources'],
  ] as const)('fails as a whole if the driver throws: %s (requirement 3.1)', async (what, method) => {
    const refuse = async () => {
      throw new Error('firmware is gone');
    };
    await using bench = await startBench({ prepareResourceClaims: refuse, unprepareResourceClaims: refuse });
    const { wire } = bench.addPod('a');
    await expect(bench.kubelet.client(testDriver)[method]([wire])).rejects.toMatchObject({
      code: status.UNKNOWN,
      details: `${what} resource claims: firmware is gone`,
    });
  });
});

describe('NodeUnprepareResources', () => {
  it('is idempotent and needs no API server (requirement 3.1)', async ({ own: bench }) => {
    const { wire } = await bench.preparePod('a');
    const requestsBefore = bench.api.log.length;
    for (let round = 0; round < 2; round++) {
      const { claims } = await bench.kubelet.client(testDriver).nodeUnprepareResources([wire]);
      expect(claims[wire.uid]?.error).toBe('');
    }
    expect(bench.api.log).toHaveLength(requestsBefore);
    expect(bench.cdiSpecs()).toEqual([]);
    expect(bench.claimDirs()).toEqual([]);
  });

  it('succeeds for a claim that was never prepared (requirement 3.1)', async ({ own: bench }) => {
    const wire = { namespace: 'default', name: 'never', uid: 'u' };
    const { claims } = await bench.kubelet.client(testDriver).nodeUnprepareResources([wire]);
    expect(claims).toEqual({ u: { error: '' } });
  });

  it.each<[string, unknown, string]>([
    ['a string', 'device busy', 'device busy'],
    ['an error without a message', new Error(''), 'Error'],
    ['an object without discard', {}, 'the driver gave a result with neither an error nor a list of devices'],
    ['null', null, ''],
  ])('returns an entry for a claim whose result is %s', async (_what, result, text) => {
    await using bench = await startBench({
      unprepareResourceClaims: async (claims) => new Map(claims.map(({ uid }) => [uid, result as Error])),
    });
    const { wire } = await bench.preparePod('a');
    const { claims } = await bench.kubelet.client(testDriver).nodeUnprepareResources([wire]);
    expect(claims[wire.uid]?.error).toBe(text);
    expect(bench.claimDirs()).toEqual(text === '' ? [] : ['default_a']);
  });

  it('keeps the files of a claim whose devices the driver failed to release (requirement 1.9)', async () => {
    await using bench = await startBench({
      unprepareResourceClaims: async (claims) =>
        new Map(claims.map(({ uid, name }) => [uid, name === 'stuck' ? new Error('VF is stuck') : undefined])),
    });
    const pods = ['stuck', 'fine'].map((name) => bench.addPod(name));
    for (const { pod } of pods) await bench.kubelet.prepare(pod);
    const { claims } = await bench.kubelet.client(testDriver).nodeUnprepareResources(pods.map(({ wire }) => wire));
    expect(pods.map(({ wire }) => claims[wire.uid]?.error)).toEqual(['VF is stuck', '']);
    expect(bench.claimDirs()).toEqual(['default_stuck']);
    expect(bench.cdiSpecs()).toHaveLength(1);
  });
});
