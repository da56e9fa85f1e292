import { describe, expect } from 'vitest';
import { withClaimStatus } from '../../../../src/framework/claimstatus/index.ts';
import type { AllocatedDeviceStatus, ResourceClaim } from '../../../../src/framework/kube/index.ts';
import { fetchClaims } from '../../../../src/framework/kubeletplugin/claims.ts';
import { poll } from '../../../doubles/kube-bench.ts';
import { buildClaim, testDriver, testNode } from '../../../doubles/objects.ts';
import { it, ready, startBench } from './claim-status-bench.ts';

/** An entry as the API has it. */
function entry(device: string, more: Partial<AllocatedDeviceStatus> = {}) {
  const { networkData = {} } = ready(device);
  return { driver: testDriver, pool: testNode, device, networkData, ...more };
}

describe('ClaimStatusWriter', () => {
  it('writes a constantly changing claim six times without delay, and afterwards every ten seconds', async () => {
    await using bench = await startBench();
    const [claim, other] = [bench.createClaim(), bench.createClaim('other')];
    const writer = bench.start();
    const ip = (last: number) => ({ interfaceName: 'net1', ips: [`192.0.2.${last}/24`] });
    for (let change = 1; change <= 6; change++) {
      writer.set(claim, [ready('vf-0', { networkData: ip(change) })]);
      await poll(bench.patches).toHaveLength(change);
    }
    for (let change = 7; change <= 40; change++) writer.set(claim, [ready('vf-0', { networkData: ip(change) })]);
    // Others do not wait for it.
    writer.set(other, [ready('vf-0')]);
    await poll(bench.patches).toHaveLength(7);
    bench.clock.advance(9_000);
    expect(bench.patches()).toHaveLength(7);
    bench.clock.advance(2_000);
    await poll(bench.patches).toHaveLength(8);
    expect(bench.entries()).toMatchObject([{ networkData: ip(40) }]);
    // Its end is not held up.
    writer.set(claim, [ready('vf-0', { networkData: ip(41) })]);
    await poll(() => bench.clock.sleeping()).toEqual([1_000]);
    writer.remove(claim);
    bench.clock.advance(1_000);
    await bench.startRemovals();
    await poll(() => writer.size).toBe(1);
  });

  it('writes one entry for a device that two requests share', async ({ own: bench, claim }) => {
    bench.start().set(claim, [ready('vf-0'), ready('vf-0')]);
    await poll(bench.entries).toHaveLength(1);
  });

  it('writes nothing without changes, even after a restart', async ({ own: bench, claim }) => {
    const first = bench.start();
    first.set(claim, [ready('vf-0', { data: { a: 1 } })]);
    await poll(bench.patches).toHaveLength(1);
    await poll(bench.entries).toHaveLength(1);
    first.set(claim, [ready('vf-0', { data: { a: 1 } })]);
    await first[Symbol.asyncDispose]();

    const second = bench.start();
    const reads = () => bench.api.requests('GET /resourceclaims/').length;
    const before = reads();
    second.set(claim, [ready('vf-0', { data: { a: 1 } })]);
    await poll(reads).toBe(before + 1);
    second.set(claim, [ready('vf-0', { data: { a: 2 } })]);
    await poll(() => bench.entries()?.[0]?.data).toEqual({ a: 2 });
    expect(bench.patches()).toHaveLength(2);
  });

  it('reads the status again after the previous driver instance has ended, because that may have written last', async ({
    own: bench,
    claim,
  }) => {
    const [old, next] = [bench.start(), bench.start()];
    next.set(claim, [ready('vf-0')]);
    await poll(() => bench.entries()?.[0]?.conditions?.[0]?.status).toBe('True');
    old.set(claim, [{ pool: testNode, device: 'vf-0', ready: false, reason: 'NotAttached' }]);
    await poll(() => bench.entries()?.[0]?.conditions?.[0]?.status).toBe('False');
    await old[Symbol.asyncDispose]();
    bench.clock.advance(120_000);
    next.set(claim, [ready('vf-0')]);
    await poll(() => bench.entries()?.[0]?.conditions?.[0]?.status).toBe('True');
    const reads = bench.api.requests('GET /resourceclaims/').length;
    next.set(claim, [ready('vf-0')]);
    await next[Symbol.asyncDispose]();
    expect(bench.api.requests('GET /resourceclaims/')).toHaveLength(reads);
  });

  it('keeps the transition time of the condition Ready, and updates it when Ready changes', async ({
    own: bench,
    claim,
  }) => {
    const before = '2026-01-01T00:00:00Z';
    bench.api.edit<ResourceClaim>('ResourceClaim', claim.name, ({ status }) => {
      const condition = { type: 'Ready', status: 'True', reason: 'Old', message: '', lastTransitionTime: before };
      if (status !== undefined) status.devices = [entry('vf-0', { conditions: [condition as never] })];
    });
    const writer = bench.start();
    const condition = () => bench.entries()?.[0]?.conditions?.[0];
    writer.set(claim, [ready('vf-0')]);
    await poll(condition).toMatchObject({ reason: 'Attached', status: 'True', lastTransitionTime: before });
    writer.set(claim, [ready('vf-0', { ready: false, reason: 'LinkDown' })]);
    await poll(condition).toMatchObject({ reason: 'LinkDown', status: 'False' });
    expect(condition()?.lastTransitionTime).not.toBe(before);
  });

  it('writes further conditions of the driver, and keeps conditions of other components', async ({
    own: bench,
    claim,
  }) => {
    const before = '2026-01-01T00:00:00Z';
    const of = (type: string, status: string) => ({
      type,
      status,
      reason: 'Old',
      message: '',
      lastTransitionTime: before,
    });
    bench.api.edit<ResourceClaim>('ResourceClaim', claim.name, ({ status }) => {
      const conditions = [of('Bound', 'True'), of('Near', 'True')] as never[];
      if (status !== undefined) status.devices = [entry('vf-0', { conditions })];
    });
    const writer = bench.start();
    const conditions = () =>
      Object.fromEntries((bench.entries()?.[0]?.conditions ?? []).map((each) => [each.type, each]));
    writer.set(claim, [ready('vf-0')]);
    await poll(conditions).toMatchObject({ Ready: {}, Bound: of('Bound', 'True'), Near: of('Near', 'True') });
    for (const [status, reason] of [
      ['True', 'New'],
      ['False', 'Far'],
    ] as const) {
      const near = { type: 'Near', status, reason, message: 'because' };
      writer.set(claim, [ready('vf-0', { conditions: [near] })]);
      await poll(conditions).toMatchObject({ Ready: {}, Bound: of('Bound', 'True'), Near: near });
      expect(conditions().Near?.lastTransitionTime === before).toBe(status === 'True');
    }
    expect(Object.keys(conditions())).toHaveLength(3);
  });

  it('distinguishes devices with the same name by share', async ({ own: bench }) => {
    const shares = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222'];
    const devices = shares.map((shareID) => ({ device: 'vf-0', shareID }));
    const { namespace, name, uid } = bench.api.create(
      buildClaim('shared', { requests: [{ name: 'vf', devices }] }),
    ).metadata;
    bench.start().set(
      { namespace: namespace ?? '', name, uid },
      shares.map((shareId, n) => ready('vf-0', { shareId, data: { n } })),
    );
    await poll(() => bench.entries('shared')?.map(({ shareID, data }) => [shareID, data])).toEqual(
      shares.map((shareID, n) => [shareID, { n }]),
    );
  });

  it('truncates addresses and messages that exceed API limits', async ({ own: bench, claim }) => {
    const ips = Array.from({ length: 20 }, (_, n) => `192.0.2.${n}/24`);
    const networkData = { interfaceName: 'net1', ips: [...ips.slice(0, 3), ...ips] };
    bench.start().set(claim, [ready('vf-0', { networkData, message: 'x'.repeat(40_000) })]);
    await poll(bench.entries).toMatchObject([{ networkData: { ips: ips.slice(0, 16) } }]);
    expect(bench.entries()?.[0]?.conditions?.[0]?.message).toHaveLength(32_768);
  });

  it('removes its entries only at unprepare, and then forgets the claim', async ({ own: bench }) => {
    const claims = [bench.createClaim('good'), bench.createClaim('bad')];
    const writer = bench.start();
    for (const claim of claims) writer.set(claim, [ready('vf-0')]);
    await poll(() => [bench.entries('good')?.length, bench.entries('bad')?.length]).toEqual([1, 1]);
    const plugin = withClaimStatus(
      {
        prepareResourceClaims: async () => new Map(),
        unprepareResourceClaims: async ([good, bad]) =>
          new Map([
            [good?.uid ?? '', undefined],
            [bad?.uid ?? '', new Error('busy')],
          ]),
      },
      writer,
    );
    const requests = bench.api.log.length;
    await plugin.unprepareResourceClaims(claims, { signal: AbortSignal.timeout(10_000) });
    await bench.startRemovals();
    // Nothing was asked for while the kubelet waited.
    expect(bench.api.log).toHaveLength(requests);
    await poll(() => bench.entries('good') ?? []).toEqual([]);
    await poll(() => writer.size).toBe(1);
    expect(bench.entries('bad')).toHaveLength(1);
  });

  it('waits up to three seconds if a state is about to change', async ({ own: bench }) => {
    const [claim, other] = [bench.createClaim(), bench.createClaim('other')];
    const writer = bench.start();
    writer.set(claim, [ready('vf-0', { networkData: { interfaceName: 'net1' } })], false);
    writer.set(other, [ready('vf-0')], false);
    await poll(() => bench.clock.sleeping()).toHaveLength(2);
    writer.set(claim, [ready('vf-0')]);
    bench.clock.advance(500);
    await poll(bench.entries).toMatchObject([entry('vf-0')]);
    expect(bench.patches()).toHaveLength(1);
    for (let waitedMs = 500; waitedMs < 3_000; waitedMs += 500) {
      await poll(() => bench.clock.sleeping()).toHaveLength(1);
      expect(bench.entries('other')).toBeUndefined();
      writer.set(other, [ready('vf-0')], false);
      bench.clock.advance(500);
    }
    await poll(() => bench.entries('other')).toMatchObject([entry('vf-0')]);
    expect(bench.patches()).toHaveLength(2);
  });

  it('writes no entry for a device that is no longer allocated to the claim', async ({ own: bench }) => {
    const claim = bench.createClaim('fast-net', 1);
    const writer = bench.start();
    writer.set(claim, [ready('vf-0'), ready('vf-1')]);
    await poll(bench.entries).toMatchObject([entry('vf-0')]);
    bench.api.edit<ResourceClaim>('ResourceClaim', 'fast-net', ({ status }) => {
      for (const result of status?.allocation?.devices?.results ?? []) result.pool = 'node-2';
      for (const each of status?.devices ?? []) each.pool = 'node-2';
    });
    // The same driver, on the node that the claim was on before.
    const other = bench.start(testDriver, testNode);
    const patches = bench.patches().length;
    other.set(claim, [ready('vf-0')]);
    await poll(() => bench.api.log.filter(({ method }) => method === 'GET').length).toBeGreaterThan(1);
    other.remove(claim);
    await bench.startRemovals();
    await poll(() => other.size).toBe(0);
    expect(bench.entries()).toMatchObject([{ ...entry('vf-0'), pool: 'node-2' }]);
    expect([bench.patches().length - patches, bench.failures, bench.warnings()]).toEqual([0, [], []]);
  });

  it('writes nothing to an unprepared claim whose allocation has been removed', async ({
    own: bench,
    claim,
    writer,
  }) => {
    writer.set(claim, [ready('vf-0')]);
    await poll(bench.entries).toHaveLength(1);
    writer.remove(claim);
    bench.api.edit<ResourceClaim>('ResourceClaim', claim.name, (object) => {
      delete object.status;
    });
    const before = bench.api.log.length;
    await bench.startRemovals();
    await poll(() => writer.size).toBe(0);
    expect(bench.api.log.slice(before).map(({ method }) => method)).toEqual(['GET']);
  });

  it('reads a prepared claim only once, unless the claim has changed', async ({ own: bench }) => {
    const [claim, changed] = [bench.createClaim(), bench.createClaim('changed')];
    const writer = bench.start();
    const prepared = { devices: [] };
    const plugin = withClaimStatus(
      {
        prepareResourceClaims: async (claims) => new Map(claims.map(({ identity }) => [identity.uid, prepared])),
        unprepareResourceClaims: async () => new Map(),
      },
      writer,
    );
    const reads = () => bench.api.log.filter(({ method, path }) => method === 'GET' && /resourceclaims\/./.test(path));
    const objects = await fetchClaims({ claims: bench.resources }, [claim, changed], AbortSignal.timeout(10_000));
    await plugin.prepareResourceClaims(objects, { signal: AbortSignal.timeout(10_000) });
    expect(reads()).toHaveLength(2);
    // Another driver reports its device.
    await bench.start('gpu.example.com').set(changed, [ready('gpu-0')]);
    await poll(() => bench.entries('changed')).toHaveLength(1);
    const before = reads().length;
    for (const each of [claim, changed]) writer.set(each, [ready('vf-0')]);
    await poll(() => [bench.entries()?.length, bench.entries('changed')?.length]).toEqual([1, 2]);
    expect(reads().length - before).toBe(1);
  });

  it('skips a deleted claim', async ({ own: bench, claim, writer }) => {
    writer.set(claim, [ready('vf-0')]);
    await poll(bench.entries).toHaveLength(1);
    bench.api.delete('ResourceClaim', claim.name);
    writer.set(claim, [ready('vf-0', { reason: 'Changed' })]);
    await poll(() => writer.size).toBe(0);
    const unknown = bench.start();
    unknown.remove(claim);
    await bench.startRemovals();
    await poll(() => unknown.size).toBe(0);
    expect(bench.entries()).toBeUndefined();
    expect(bench.warnings()).toEqual([]);
  });

  it('writes a state that arrives just after the previous one is written', async ({ own: bench }) => {
    for (let microtasks = 0; microtasks < 40; microtasks++) {
      const name = `claim-${microtasks}`;
      const claim = bench.createClaim(name);
      await using writer = bench.start();
      writer.set(claim, [ready('vf-0')]);
      await poll(() => bench.entries(name)).toHaveLength(1);
      await poll(() => bench.api.log.every(({ endedMs }) => endedMs !== undefined)).toBe(true);
      await new Promise(setImmediate);
      // There is nothing to write, so that no time passes until it is done.
      writer.set(claim, [ready('vf-0')]);
      for (let n = 0; n < microtasks; n++) await undefined;
      writer.set(claim, [ready('vf-0', { reason: 'Changed' })]);
      await poll(() => bench.entries(name)?.[0]?.conditions?.[0]?.reason).toBe('Changed');
    }
  });

  it('sends requests for 4 claims at a time', async ({ own: bench }) => {
    const claims = Array.from({ length: 20 }, (_, n) => bench.createClaim(`claim-${n}`));
    const writer = bench.start();
    const hanging = bench.api.hang('GET /resourceclaims/');
    for (const claim of claims) writer.set(claim, [ready('vf-0')]);
    await poll(() => bench.api.log).toHaveLength(4);
    hanging[Symbol.dispose]();
    await poll(() => claims.every(({ name }) => bench.entries(name)?.length === 1)).toBe(true);
    await poll(() => bench.api.log.every(({ endedMs }) => endedMs !== undefined)).toBe(true);
    const parallel = bench.api.log.map(
      ({ startedMs }) =>
        bench.api.log.filter((other) => other.startedMs <= startedMs && (other.endedMs ?? 0) > startedMs).length,
    );
    expect(Math.max(...parallel)).toBe(4);
  });

  it('stops at once although requests fail or hang, and sends no further request', async ({ own: bench }) => {
    const claims = Array.from({ length: 8 }, (_, n) => bench.createClaim(`claim-${n}`));
    bench.api.failNext('/claim-0', 500, { times: Infinity });
    using _hanging = bench.api.hang('/claim-1');
    const writer = bench.start();
    for (const claim of claims) writer.set(claim, [ready('vf-0')]);
    await poll(() => bench.clock.sleeping()).toHaveLength(1);
    await writer[Symbol.asyncDispose]();
    await writer[Symbol.asyncDispose]();
    expect(bench.clock.sleeping()).toEqual([]);
    const requests = bench.api.log.length;
    writer.set(bench.createClaim('late'), [ready('vf-0')]);
    expect(bench.api.log).toHaveLength(requests);
  });
});
