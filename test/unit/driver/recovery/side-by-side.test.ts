import { describe, expect, it } from 'vitest';
import { testDriver } from '../../../doubles/objects.ts';
import { startBench } from '../../framework/kubeletplugin/bench.ts';

const never = new AbortController().signal;

/** A driver that waits for ever with one claim. */
function stuckWith(name: string) {
  const begun: string[] = [];
  const release = Promise.withResolvers<void>();
  return {
    begun,
    release,
    behaviour: {
      prepareResourceClaims: async (claims: { identity: { uid: string; name: string } }[]) => {
        begun.push(...claims.map(({ identity }) => identity.name));
        if (claims.some(({ identity }) => identity.name === name)) await release.promise;
        return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
      },
    },
  };
}

describe('concurrent kubelet calls with serialize: false', () => {
  it('delay only the pod of a hanging claim', async () => {
    const { behaviour, begun, release } = stuckWith('slow');
    await using bench = await startBench(behaviour, { serialize: false });
    const client = bench.kubelet.client(testDriver);
    const [slow, other] = [bench.addPod('slow').wire, bench.addPod('other').wire];
    const hanging = client.nodePrepareResources([slow]);
    await expect.poll(() => begun).toEqual(['slow']);
    expect((await client.nodePrepareResources([other])).claims[other.uid]?.error).toBe('');
    expect((await client.nodeUnprepareResources([other])).claims[other.uid]?.error).toBe('');
    // What is about the same claim waits for its turn.
    const unprepare = client.nodeUnprepareResources([slow]);
    const first = await Promise.race([unprepare.then(() => 'unprepare'), hanging.then(() => 'prepare'), soon()]);
    expect(first).toBe('neither');
    release.resolve();
    await hanging;
    expect((await unprepare).claims[slow.uid]?.error).toBe('');
  });

  it('do not deadlock if they name the same claims in different orders', async () => {
    await using bench = await startBench({}, { serialize: false });
    const client = bench.kubelet.client(testDriver);
    const wires = ['a', 'b', 'c'].map((name) => bench.addPod(name).wire);
    const calls = Array.from({ length: 12 }, (_, n) =>
      client.nodePrepareResources(n % 2 === 0 ? wires : wires.toReversed()),
    );
    expect((await Promise.all(calls)).every(({ claims }) => Object.keys(claims).length === 3)).toBe(true);
  });
});

it('prepareAgain prepares a claim for the pods that it is now reserved for, if the callback agrees', async () => {
  const podUids: string[][] = [];
  await using bench = await startBench({
    prepareResourceClaims: async (claims) => {
      podUids.push(...claims.map((claim) => claim.podUids));
      return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
    },
  });
  const { claim, pod, wire } = await bench.preparePod('shared');
  claim.status = { ...claim.status, reservedFor: [{ resource: 'pods', name: 'next', uid: 'next-uid' }] };
  bench.api.update(claim);
  expect(await bench.helper.prepareAgain(wire, async () => false, never)).toBe(false);
  expect(await bench.helper.prepareAgain(wire, async () => true, never)).toBe(true);
  expect(podUids).toEqual([[pod.metadata.uid], ['next-uid']]);
  expect(bench.claimDirs()).toEqual(['default_shared']);
});

describe('reclaim', () => {
  it('unprepares a claim and removes its files unless a pod needs the claim again', async () => {
    await using bench = await startBench();
    const { wire } = await bench.preparePod('gone');
    expect(bench.claimDirs()).toEqual(['default_gone']);
    expect(await bench.helper.reclaim(wire, async () => false, never)).toBe(false);
    expect(bench.claimDirs()).toEqual(['default_gone']);
    expect(await bench.helper.reclaim(wire, async () => true, never)).toBe(true);
    expect([bench.claimDirs(), bench.cdiSpecs()]).toEqual([[], []]);
  });

  it('waits for a kubelet call that handles the claim', async () => {
    const { behaviour, begun, release } = stuckWith('slow');
    await using bench = await startBench(behaviour, { serialize: false });
    const { wire } = bench.addPod('slow');
    const hanging = bench.kubelet.client(testDriver).nodePrepareResources([wire]);
    await expect.poll(() => begun).toEqual(['slow']);
    let asked = false;
    const reclaim = bench.helper.reclaim(wire, async () => (asked = true), never);
    expect([await Promise.race([reclaim, soon()]), asked]).toEqual(['neither', false]);
    release.resolve();
    await hanging;
    expect([await reclaim, asked]).toEqual([true, true]);
  });
});

/** Later than anything that does not have to wait: all of it happens in this process. */
const soon = async () => {
  for (let n = 0; n < 50; n++) await new Promise((resolve) => setImmediate(resolve));
  return 'neither';
};
