import { describe, expect, it } from 'vitest';
import { buildPod } from '../../../doubles/objects.ts';
import { allocated, DriverBench, fromClaim } from './driver-bench.ts';
import { refusal } from './driver-hooks.ts';

describe('VRFs of a pod', () => {
  it.each([
    [
      { vrf: { name: 'red', table: 11 } },
      'vrf: device dev-2 has red with table 11, but device dev-1 of claim default/first has red with table 10',
    ],
    [
      { vrf: { name: 'blue', table: 10 } },
      'vrf: device dev-2 has blue with table 10, but device dev-1 of claim default/first has red with table 10',
    ],
    [
      { interfaceName: 'red' },
      'interfaceName: device dev-2 cannot have the name red, which a VRF of claim default/first has already',
    ],
    [
      { vrf: { name: 'net1', table: 11 } },
      'vrf: the VRF cannot have the name net1, which dev-1 of claim default/first has already',
    ],
    [
      { vrf: { name: 'red', table: 10 }, routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.9' }] },
      'routes: device dev-2 cannot have a route to 198.51.100.0/24 by 192.0.2.9, which dev-1 of claim default/first has by 192.0.2.1',
    ],
  ])('are compared across its claims: %j', async (other, problem) => {
    using bench = new DriverBench();
    const pods = [buildPod('app')];
    const first = {
      interfaceName: 'net1',
      vrf: { name: 'red', table: 10 },
      routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }],
    };
    const prepare = async (name: string, device: string, fields: object, of: { pods?: typeof pods } = { pods }) =>
      await bench.prepare(allocated(name, [device], { ...of, config: [fromClaim(fields)] }));
    expect(await prepare('first', 'dev-1', first)).toEqual({ devices: [] });
    expect(await prepare('second', 'dev-2', other)).toMatchObject(
      refusal('config-invalid', expect.stringContaining(problem)),
    );
    expect(await prepare('same', 'dev-3', { vrf: first.vrf })).toEqual({ devices: [] });
    // In another pod.
    expect(await prepare('third', 'dev-4', other, {})).toEqual({ devices: [] });
  });

  it('are compared within a claim', async () => {
    using bench = new DriverBench();
    const requests = ['a', 'b'].map((name, index) => ({ name, devices: [`dev-${index}`] }));
    const config = [10, 11].map((table, index) => ({
      ...fromClaim({ vrf: { name: 'red', table } }),
      requests: ['ab'[index] ?? ''],
    }));
    const problem = 'vrf: device dev-1 has red with table 11, but device dev-0 has red with table 10';
    expect(await bench.prepare(allocated('twice', [], { requests, config }))).toMatchObject(
      refusal('config-invalid', expect.stringContaining(problem)),
    );
  });
});
