import { describe, expect, it } from 'vitest';
import type { PrepareResult } from '../../../../src/framework/kubeletplugin/index.ts';
import { decodeStream } from '../../../../src/framework/metadata/index.ts';
import { buildClaim, buildPod, testDriver } from '../../../doubles/objects.ts';
import { type Behaviour, Bench, preparedDevice, startBench, wireClaim } from './bench.ts';

const owned = (name: string, more: object = {}) => ({ driver: testDriver, pool: 'node-1', name, ...more });

/** A driver as the contract wants it: a device belongs to one claim, and to one pod. It remembers who has it. */
function exclusiveDriver() {
  const holders = new Map<string, string>();
  const prepareOne = ({
    identity,
    results,
    podUids,
  }: Parameters<Required<Behaviour>['prepareResourceClaims']>[0][0]) => {
    if (podUids.length > 1) throw new Error(`reserved for ${podUids.length} pods, a VF can be in one only`);
    for (const { device } of results) {
      const holder = holders.get(device);
      if (holder !== undefined && holder !== identity.uid)
        throw new Error(`${device} is still held by claim ${holder}`);
    }
    for (const { device } of results) holders.set(device, identity.uid);
    return { devices: [] };
  };
  const behaviour: Behaviour = {
    prepareResourceClaims: async (claims) =>
      new Map(
        claims.map((claim): [string, PrepareResult] => {
          try {
            return [claim.identity.uid, prepareOne(claim)];
          } catch (error) {
            return [claim.identity.uid, { error: error as Error }];
          }
        }),
      ),
    unprepareResourceClaims: async (claims) => {
      for (const { uid } of claims) for (const [device, holder] of holders) if (holder === uid) holders.delete(device);
      return new Map(claims.map(({ uid }) => [uid, undefined]));
    },
  };
  return { holders, behaviour };
}

describe('KEP-3063 NodePrepareResource', () => {
  it('is idempotent: the same answer, the same specs, nothing lost', async () => {
    await using bench = await startBench();
    const { pod, wire } = bench.addPod('a');
    await bench.kubelet.prepare(pod);
    await bench.helper.updateRequestMetadata(wire, 'vf', [owned('dev-a', { networkData: { ips: ['192.0.2.1/24'] } })]);
    const [specs, text] = [bench.cdiSpecs(), bench.metadataText('a', 'vf')];
    const client = bench.kubelet.client(testDriver);
    const first = await client.nodePrepareResources([wire]);
    expect(await client.nodePrepareResources([wire])).toEqual(first);
    // facts §1.7: the Go helper goes back to generation 1 here, and forgets the addresses.
    expect([bench.cdiSpecs(), bench.metadataText('a', 'vf')]).toEqual([specs, text]);
  });

  it('facts §3.2: is called again when another driver of the pod failed, and gives the same ids', async () => {
    await using bench = await Bench.start();
    let isBroken = true;
    await bench.startHelper();
    await bench.startHelper(
      {
        prepareResourceClaims: async (claims) =>
          new Map(
            claims.map(({ identity }): [string, PrepareResult] => [
              identity.uid,
              isBroken ? { error: new Error('GPU fell off the bus') } : { devices: [] },
            ]),
          ),
      },
      { driver: 'gpu.example' },
    );
    const devices = ['dev-a', { device: 'gpu-0', driver: 'gpu.example', pool: 'gpus' }];
    const { pod } = bench.addPod('a', { requests: [{ name: 'vf', devices }] });
    await expect(bench.kubelet.prepare(pod)).rejects.toThrow(/GPU fell off the bus/);
    isBroken = false;
    await bench.kubelet.prepare(pod);
    expect(Object.keys(bench.mountsOf(pod))).toHaveLength(2);
  });
});

describe('KEP-3063 NodeUnprepareResource', () => {
  it('is called again for all drivers when one of them failed', async () => {
    await using bench = await Bench.start();
    let failures = 1;
    const unprepared: string[] = [];
    await bench.startHelper({
      unprepareResourceClaims: async (claims) => {
        unprepared.push(...claims.map(({ name }) => name));
        return new Map(claims.map(({ uid }) => [uid, undefined]));
      },
    });
    await bench.startHelper(
      {
        unprepareResourceClaims: async (claims) =>
          new Map(claims.map(({ uid }) => [uid, failures-- > 0 ? new Error('busy') : undefined])),
      },
      { driver: 'gpu.example' },
    );
    const devices = ['dev-a', { device: 'gpu-0', driver: 'gpu.example', pool: 'gpus' }];
    const { pod } = bench.addPod('a', { requests: [{ name: 'vf', devices }] });
    await bench.kubelet.prepare(pod);
    await expect(bench.kubelet.unprepare(pod)).rejects.toThrow(/NodeUnprepareResources failed.*busy/);
    await bench.kubelet.unprepare(pod);
    expect(unprepared).toEqual(['a', 'a']);
    expect(bench.cdiSpecs()).toEqual([]);
  });
});

describe('KEP-3063 one claim', () => {
  it('for several pods is prepared before the first and unprepared after the last', async () => {
    const calls: string[] = [];
    await using bench = await startBench({
      prepareResourceClaims: async (claims) => {
        for (const { podUids } of claims) calls.push(`prepare for ${podUids.length} pods`);
        return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
      },
      unprepareResourceClaims: async (claims) => {
        calls.push('unprepare');
        return new Map(claims.map(({ uid }) => [uid, undefined]));
      },
    });
    const pods = ['one', 'two'].map((name) =>
      buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: 'shared' }] }),
    );
    bench.api.create(buildClaim('shared', { requests: [{ name: 'vf', devices: ['dev-1'] }], pods }));
    for (const pod of pods) await bench.kubelet.prepare(pod);
    expect(bench.mountsOf(pods[1]!)).toEqual(bench.mountsOf(pods[0]!));
    await bench.kubelet.unprepare(pods[0]!);
    expect(bench.cdiSpecs()).toHaveLength(1);
    await bench.kubelet.unprepare(pods[1]!);
    expect(calls).toEqual(['prepare for 2 pods', 'unprepare']);
    expect(bench.cdiSpecs()).toEqual([]);
  });
});

describe('KEP-3063 force-deleted pods', () => {
  it('can leave a device that another claim is given: the driver refuses it until it is free', async () => {
    const { behaviour } = exclusiveDriver();
    await using bench = await startBench(behaviour);
    const requests = [{ name: 'vf', devices: ['dev-1'] }];
    const old = bench.addPod('old', { requests });
    await bench.kubelet.prepare(old.pod);
    bench.api.delete('ResourceClaim', 'old');
    const next = bench.addPod('next', { requests });
    await expect(bench.kubelet.prepare(next.pod)).rejects.toThrow(`dev-1 is still held by claim ${old.wire.uid}`);
    await bench.kubelet.unprepare(old.pod);
    await bench.kubelet.prepare(next.pod);
  });
});

describe('KEP-3063 a claim of the same name with another UID', () => {
  it('facts §3.2: waits for the old one, then starts from nothing', async () => {
    await using bench = await startBench();
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

  it('facts §1.9: keeps its files when the old one is unprepared late', async () => {
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

  it('facts §1.8: is not changed by an update of the old one, which is refused', async () => {
    await using bench = await startBench();
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
