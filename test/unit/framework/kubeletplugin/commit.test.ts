import { describe, expect, it } from 'vitest';
import type { PrepareResult, UnprepareResult } from '../../../../src/framework/kubeletplugin/index.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { type Bench, startBench } from './bench.ts';

const settings = [
  { what: 'with metadata', options: {} },
  { what: 'without metadata', options: { metadata: false as const } },
];

async function addPods(bench: Bench, names: string[]) {
  const wires = names.map((name) => bench.addPod(name).wire);
  const client = bench.kubelet.client(testDriver);
  const { claims } = await client.nodePrepareResources(wires);
  return { wires, client, errors: wires.map(({ uid }) => claims[uid]?.error) };
}

describe.each(settings)('a kubelet plugin $what', ({ options }) => {
  it('commits all claims of a call that were prepared, and fails a claim whose commit throws', async () => {
    const committed: string[] = [];
    const prepared = (name: string): PrepareResult => ({
      devices: [],
      ...(name === 'bad' ? { error: new Error('no such VF') } : {}),
      commit: () => {
        if (name === 'taken') throw new Error('its VF is taken');
        committed.push(name);
      },
    });
    await using bench = await startBench(
      {
        prepareResourceClaims: async (claims) =>
          new Map(claims.map(({ identity: { uid, name } }) => [uid, prepared(name)])),
      },
      options,
    );
    const { errors } = await addPods(bench, ['good', 'taken', 'bad']);
    expect(errors).toEqual(['', 'its VF is taken', 'no such VF']);
    expect(committed).toEqual(['good']);
  });

  it('discards unprepared claims once their files are removed, and fails a claim whose discard throws', async () => {
    const discarded: [string, string[]][] = [];
    const unprepared = (name: string): UnprepareResult => {
      if (name === 'stuck') return new Error('VF is stuck');
      return {
        discard: () => {
          if (name === 'locked') throw new Error('the store is locked');
          discarded.push([name, bench.cdiSpecs()]);
        },
      };
    };
    await using bench = await startBench(
      { unprepareResourceClaims: async (claims) => new Map(claims.map(({ uid, name }) => [uid, unprepared(name)])) },
      options,
    );
    const { wires, client } = await addPods(bench, ['fine', 'locked', 'stuck']);
    const ofStuck = bench.cdiSpecs().filter((spec) => spec.includes(wires[2]!.uid));
    const { claims } = await client.nodeUnprepareResources(wires);
    const errors = ['', 'clean up device metadata: the store is locked', 'VF is stuck'];
    expect(wires.map(({ uid }) => claims[uid]?.error)).toEqual(errors);
    expect(discarded).toEqual([['fine', ofStuck]]);
  });

  it('fails a claim whose last step is asynchronous, and outlives its rejection', async () => {
    const rejects = (async () => {
      throw new Error('too late');
    }) as () => unknown as () => undefined;
    await using bench = await startBench(
      {
        prepareResourceClaims: async (claims) =>
          new Map(
            claims.map(({ identity: { uid, name } }): [string, PrepareResult] => [
              uid,
              { devices: [], ...(name === 'late' && { commit: rejects }) },
            ]),
          ),
        unprepareResourceClaims: async (claims) => new Map(claims.map(({ uid }) => [uid, { discard: rejects }])),
      },
      options,
    );
    const { wires, client, errors } = await addPods(bench, ['fine', 'late']);
    expect(errors).toEqual(['', expect.stringContaining('commit returned a promise')]);
    const { claims } = await client.nodeUnprepareResources(wires);
    expect(claims[wires[0]!.uid]?.error).toContain('discard returned a promise');
  });
});

it('TypeScript refuses an asynchronous last step', () => {
  // @ts-expect-error: the framework does not wait for it
  const prepared: PrepareResult = { devices: [], commit: async () => {} };
  // @ts-expect-error: the framework does not wait for it
  const unprepared: UnprepareResult = { discard: async () => {} };
  const fine: PrepareResult = { devices: [], commit: () => void 0 };
  expect([prepared, unprepared, fine]).toHaveLength(3);
});
