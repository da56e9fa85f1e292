import { describe, expect } from 'vitest';
import { type ClaimStatusApi, ClaimStatusWriter } from '../../../../src/framework/claimstatus/index.ts';
import { KubeError, type ResourceClaim } from '../../../../src/framework/kube/index.ts';
import { poll } from '../../../doubles/kube-bench.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { it, ready } from './claim-status-bench.ts';

describe('ClaimStatusWriter on failures', () => {
  it('treats a conflict without another writer as a failure', async ({ own: bench }) => {
    bench.api.failNext('PATCH /status', 409, { times: Infinity });
    bench.start().set(bench.createClaim(), [ready('vf-0')]);
    await poll(bench.warnings).toMatchObject([{ code: 'status-failed', claim: 'default/fast-net' }]);
    expect(bench.patches()).toHaveLength(1);
  });

  it('treats constant conflicts with another writer as a failure', async ({ own: bench, claim }) => {
    const { status = {} } = bench.api.get<ResourceClaim>('ResourceClaim', claim.name) ?? {};
    let version = 0;
    const api: ClaimStatusApi = {
      readClaim: async () => ({ metadata: { uid: claim.uid, resourceVersion: String(++version) }, spec: {}, status }),
      patchClaimStatus: async () => {
        throw new KubeError('api-conflict', 'the object has been modified');
      },
    };
    const { clock, logger } = bench;
    await using writer = new ClaimStatusWriter(api, { driver: testDriver, clock, logger });
    writer.set(claim, [ready('vf-0')]);
    await expect
      .poll(
        () => {
          clock.advance(400);
          return bench.warnings();
        },
        { timeout: 10_000 },
      )
      .toMatchObject([{ code: 'status-failed' }]);
    // One read at first, and one after each of five patches.
    expect(version).toBe(6);
  });

  it('retries with growing pauses, and writes the latest state each time', async ({ own: bench, claim }) => {
    bench.api.failNext('PATCH /status', 500, { times: 3 });
    const writer = bench.start();
    writer.set(claim, [ready('vf-0', { data: { n: 1 } })]);
    for (const pauseMs of [500, 1_000, 2_000]) {
      await poll(() => bench.clock.sleeping()).toEqual([pauseMs]);
      writer.set(claim, [ready('vf-0', { data: { pauseMs } })]);
      bench.clock.advance(pauseMs);
    }
    await poll(() => bench.entries()?.[0]?.data).toEqual({ pauseMs: 2_000 });
    expect(bench.warnings()).toMatchObject([{ code: 'status-failed', claim: 'default/fast-net' }]);
    expect(bench.failures).toEqual([]);
  });

  it('reports a persistent failure once per claim until it ends', async ({ own: bench }) => {
    const claims = ['one', 'two'].map((name) => bench.createClaim(name));
    const writer = bench.start();
    for (const reason of ['Attached', 'Changed']) {
      const failing = bench.api.failNext('PATCH /status', 500, { times: Infinity });
      for (const claim of claims) writer.set(claim, [ready('vf-0', { reason })]);
      for (let attempts = 1; attempts <= 7; attempts++) {
        await poll(() => bench.clock.sleeping()).toHaveLength(2);
        expect(bench.failures).toHaveLength(attempts < 5 ? 0 : 2);
        bench.clock.advance(30_000);
        await poll(() => bench.api.log.every(({ endedMs }) => endedMs !== undefined)).toBe(true);
      }
      await poll(() => bench.clock.sleeping()).toHaveLength(2);
      const errors = bench.errors.splice(0);
      expect(errors.length).toBeGreaterThanOrEqual(14);
      expect(new Set(errors)).toEqual(new Set(['status-failed']));
      const names = bench.failures.splice(0).map(([name, { code }]) => `${name} ${code}`);
      expect(names.sort()).toEqual(['one status-failed', 'two status-failed']);
      failing[Symbol.dispose]();
      bench.clock.advance(30_000);
      await poll(() => ['one', 'two'].map((name) => bench.entries(name)?.[0]?.conditions?.[0]?.reason)).toEqual([
        reason,
        reason,
      ]);
    }
    // Each time once, although two claims had it.
    expect(bench.warnings()).toHaveLength(2);
  });

  it('logs the failure of a claim once, even while other claims are written', async ({ own: bench }) => {
    const bad = bench.createClaim('bad');
    const good = bench.createClaim('good');
    bench.api.failNext('PATCH /resourceclaims/bad/status', 500, { times: Infinity });
    const writer = bench.start();
    writer.set(bad, [ready('vf-0')]);
    for (let n = 0; n < 4; n++) {
      await poll(() => bench.clock.sleeping()).toHaveLength(1);
      writer.set(good, [ready('vf-0', { data: { n } })]);
      await poll(() => bench.entries('good')?.[0]?.data).toEqual({ n });
      const before = bench.patches().length;
      bench.clock.advance(30_000);
      await poll(() => bench.patches().length).toBeGreaterThan(before);
    }
    expect(bench.warnings()).toHaveLength(1);
  });

  it('retries soon if a restarted API server temporarily forbids the write', async ({ own: bench }) => {
    const away = bench.api.failNext('PATCH /status', 503, { times: Infinity });
    bench.start().set(bench.createClaim(), [ready('vf-0')]);
    for (const pauseMs of [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]) {
      await poll(() => bench.clock.sleeping()).toEqual([pauseMs]);
      bench.clock.advance(pauseMs);
    }
    await poll(() => bench.clock.sleeping()).toEqual([30_000]);
    away[Symbol.dispose]();
    bench.api.failNext('PATCH /status', 403);
    bench.clock.advance(30_000);
    await poll(() => bench.clock.sleeping()).toEqual([500]);
    bench.clock.advance(500);
    await poll(bench.entries).toHaveLength(1);
  });

  it('names the missing status permission', async ({ own: bench }) => {
    bench.api.failNext('PATCH /status', 403);
    bench.start().set(bench.createClaim(), [ready('vf-0')]);
    await poll(bench.warnings).toMatchObject([
      { code: 'status-forbidden', hint: expect.stringContaining('resources: [resourceclaims/status], verbs: [patch]') },
    ]);
  });

  it('does not retry a state that the server rejects as invalid', async ({ own: bench, claim, writer }) => {
    bench.api.failNext('PATCH /status', 422, { message: 'ips: must be in canonical form' });
    writer.set(claim, [ready('vf-0', { networkData: { ips: ['::FFFF/64'] } })]);
    await poll(() => bench.failures).toMatchObject([['fast-net', { code: 'status-invalid' }]]);
    expect(String(bench.failures[0]?.[1].cause)).toContain('must be in canonical form');
    await poll(() => bench.clock.sleeping()).toEqual([]);
    writer.set(claim, [ready('vf-0')]);
    await poll(bench.entries).toHaveLength(1);
  });

  it('limits the rate of writes that the server always rejects as invalid', async ({ own: bench, claim, writer }) => {
    bench.api.failNext('PATCH /status', 422, { times: Infinity, message: 'status.allocation: field is immutable' });
    for (let n = 1; n <= 6; n++) {
      writer.set(claim, [ready('vf-0', { data: { n } })]);
      await poll(() => bench.errors).toHaveLength(n);
    }
    writer.set(claim, [ready('vf-0', { data: { n: 7 } })]);
    await poll(() => bench.clock.sleeping()).toEqual([1_000]);
    expect(bench.patches()).toHaveLength(6);
  });

  it('reports once that a server drops the status', async ({ own: bench }) => {
    using _off = bench.api.admit('ResourceClaim', (claim) => {
      delete (claim as unknown as ResourceClaim).status?.devices;
    });
    const writer = bench.start();
    for (const name of ['one', 'two']) writer.set(bench.createClaim(name), [ready('vf-0')]);
    await poll(bench.patches).toHaveLength(2);
    await poll(bench.warnings).toMatchObject([{ code: 'status-dropped' }]);
    expect(bench.clock.sleeping()).toEqual([]);
    expect(bench.failures).toEqual([]);
  });

  it('stops retrying for a deleted claim', async ({ own: bench, claim }) => {
    bench.api.failNext('/resourceclaims/', 403, { times: Infinity });
    const writer = bench.start();
    writer.remove(claim);
    await bench.startRemovals();
    for (let failures = 1; failures < 8; failures++) {
      await poll(() => bench.clock.sleeping()).toHaveLength(1);
      bench.clock.advance(300_000);
    }
    await poll(() => writer.size).toBe(0);
  });
});
