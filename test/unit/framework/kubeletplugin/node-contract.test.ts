import { readdirSync } from 'node:fs';
import { describe, expect } from 'vitest';
import { decodeStream, layouts } from '../../../../src/framework/metadata/index.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { buildClaim, buildPod, testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { type Behaviour, preparedDevice, startBench, wireClaim } from './bench.ts';

const it = itWith(() => startBench());

const owned = (name: string, more: object = {}) => ({ driver: testDriver, pool: 'node-1', name, ...more });

it('KEP-3063 NodePrepareResource is idempotent: same response, same specs, no metadata lost', async ({
  own: bench,
}) => {
  const { wire } = await bench.preparePod('a');
  await bench.helper.updateRequestMetadata(wire, 'vf', [owned('dev-a', { networkData: { ips: ['192.0.2.1/24'] } })]);
  const [specs, text] = [bench.cdiSpecs(), bench.metadataText('a', 'vf')];
  const client = bench.kubelet.client(testDriver);
  const first = await client.nodePrepareResources([wire]);
  expect(await client.nodePrepareResources([wire])).toEqual(first);
  // requirement 1.7: the Go helper goes back to generation 1 here, and forgets the addresses.
  expect([bench.cdiSpecs(), bench.metadataText('a', 'vf')]).toEqual([specs, text]);
});

it('a KEP-3063 claim shared by pods is prepared before the first pod and unprepared after the last', async () => {
  const calls: string[] = [];
  using dir = tempDir();
  const behaviour: Behaviour = {
    prepareResourceClaims: async (claims) => {
      for (const { podUids } of claims) calls.push(`prepare for ${podUids.length} pods`);
      return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
    },
    unprepareResourceClaims: async (claims) => {
      calls.push('unprepare');
      return new Map(claims.map(({ uid }) => [uid, undefined]));
    },
  };
  const metadata = { downwardApiDir: dir.path, layouts: [layouts['downward-api']] };
  await using bench = await startBench(behaviour, { metadata });
  const pods = ['one', 'two'].map((name) =>
    buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: 'shared' }] }),
  );
  const claim = buildClaim('shared', { requests: [{ name: 'vf', devices: ['dev-1'] }], pods });
  bench.api.create(claim);
  const wire = wireClaim(claim);
  for (const pod of pods) await bench.kubelet.prepare(pod);
  await bench.helper.updateRequestMetadata(wire, 'vf', [owned('dev-1')]);
  expect(readdirSync(dir.path).sort()).toEqual(pods.map(({ metadata: { uid } }) => uid).sort());
  expect(bench.mountsOf(pods[1]!)).toEqual(bench.mountsOf(pods[0]!));
  await bench.kubelet.unprepare(pods[0]!);
  expect(bench.cdiSpecs()).toHaveLength(1);
  await bench.kubelet.unprepare(pods[1]!);
  expect(calls).toEqual(['prepare for 2 pods', 'unprepare']);
  expect(bench.cdiSpecs()).toEqual([]);
});

describe('a KEP-3063 claim with the name of an old claim and another UID', () => {
  it('waits until the old claim is unprepared, then starts from scratch (requirement 3.2)', async ({ own: bench }) => {
    const old = bench.addPod('a');
    await bench.kubelet.prepare(old.pod);
    await bench.helper.updateRequestMetadata(old.wire, 'vf', [owned('dev-a')]);
    bench.api.delete('ResourceClaim', 'a');
    const next = bench.addPod('a');
    await expect(bench.kubelet.prepare(next.pod)).rejects.toThrow(/old ResourceClaim with same name a .*still exists/);
    await bench.kubelet.unprepare(old.pod);
    await bench.kubelet.prepare(next.pod);
    expect(bench.metadataText('a', 'vf')).toBeUndefined();
    await bench.helper.updateRequestMetadata(next.wire, 'vf', [owned('dev-a')]);
    expect(decodeStream(bench.metadataText('a', 'vf') ?? '')).toMatchObject({
      generation: 1,
      claim: { uid: next.wire.uid },
    });
  });

  it('keeps its files when the old claim is unprepared late (requirement 1.9)', async () => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a')] });
    const client = bench.kubelet.client(testDriver);
    const old = bench.addPod('a');
    await client.nodePrepareResources([old.wire]);
    bench.api.delete('ResourceClaim', 'a');
    const next = bench.addPod('a');
    await client.nodePrepareResources([next.wire]);
    expect((await client.nodeUnprepareResources([old.wire])).claims[old.wire.uid]?.error).toBe('');
    expect(decodeStream(bench.metadataText('a', 'vf') ?? '').claim.uid).toBe(next.wire.uid);
    expect(bench.cdiSpecs()).toEqual([`${testDriver}_metadata_${next.wire.uid}_vf.json`]);
  });

  it('is not changed by an update for the old claim, which is rejected (requirement 1.8)', async ({ own: bench }) => {
    const old = bench.addPod('a');
    bench.api.delete('ResourceClaim', 'a');
    const { claim, wire } = bench.addPod('a');
    await bench.kubelet.client(testDriver).nodePrepareResources([wireClaim(claim)]);
    await expect(bench.helper.updateRequestMetadata(old.wire, 'vf', [owned('dev-a')])).rejects.toMatchObject({
      code: 'metadata-not-prepared',
    });
    expect(await bench.helper.updateRequestMetadata(wire, 'vf', [owned('dev-a')])).toMatchObject({ generation: 1 });
  });
});
