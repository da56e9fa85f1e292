import { describe, expect, it } from 'vitest';
import { buildPod } from '../../../doubles/objects.ts';
import { allocated, DriverBench, fromClaim, fromClass } from './driver-bench.ts';
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

  const forwards = { sysctls: { 'net.ipv4.conf.IFNAME.forwarding': 1 } };
  const vrf = { name: 'red', table: 10 };
  const rules = [{ priority: 100, source: '192.0.2.0/24', table: 10 }];
  const routes = [
    { destination: '198.51.100.0/24', gateway: '192.0.2.1' },
    { destination: '203.0.113.0/24', gateway: '192.0.2.1', table: 10 },
  ];
  const isRed = 'has red with table 10';
  const owner = 'device dev-1 of claim default/first';
  const onlyOne = 'all interfaces of VRF red must have the same';

  it.each([
    [
      'kernel settings that only one member has',
      { vrf, ...forwards },
      { vrf },
      `sysctls: net.ipv4.conf.IFNAME.forwarding is no value for device dev-2, and 1 for ${owner}: ${onlyOne}`,
    ],
    [
      'different kernel settings',
      { vrf },
      { vrf, ...forwards },
      `sysctls: net.ipv4.conf.IFNAME.forwarding is 1 for device dev-2, and no value for ${owner}: ${onlyOne}`,
    ],
    [
      'the table of rules',
      { rules },
      { vrf },
      `vrf: device dev-2 ${isRed}, but rules[0] of ${owner} has that table outside of the VRF`,
    ],
    [
      'the table of routes',
      { routes },
      { vrf },
      `vrf: device dev-2 ${isRed}, but routes[1] of ${owner} has that table outside of the VRF`,
    ],
    [
      'rules that use the table of the VRF',
      { vrf },
      { rules },
      `rules[0]: device dev-2 has table 10 outside of a VRF, but ${owner} ${isRed}`,
    ],
    [
      'routes that use the table of the VRF',
      { vrf },
      { routes },
      `routes[1]: device dev-2 has table 10 outside of a VRF, but ${owner} ${isRed}`,
    ],
  ])('are rejected with %s', async (_, first, second, problem) => {
    using bench = new DriverBench();
    const pods = [buildPod('app')];
    const prepare = async (name: string, device: string, fields: object) =>
      await bench.prepare(allocated(name, [device], { pods, config: [fromClass(fields)] }));
    expect(await prepare('first', 'dev-1', first)).toEqual({ devices: [] });
    expect(await prepare('second', 'dev-2', second)).toMatchObject(
      refusal('config-invalid', expect.stringContaining(problem)),
    );
  });

  it('accept equal kernel settings, different stable_secret values, and other route tables outside the VRF', async () => {
    using bench = new DriverBench();
    const pods = [buildPod('app')];
    const fields = [1, '1'].map((value, index) => ({
      vrf,
      sysctls: {
        'net.ipv4.conf.IFNAME.forwarding': value,
        'net.ipv6.conf.IFNAME.stable_secret': `2001:db8::${index}`,
      },
    }));
    const elsewhere = { rules: rules.map((rule) => ({ ...rule, table: 11 })), routes: routes.slice(0, 1) };
    for (const [index, each] of [...fields, elsewhere].entries()) {
      const claim = allocated(`claim-${index}`, [`dev-${index}`], { pods, config: [fromClass(each)] });
      expect(await bench.prepare(claim)).toEqual({ devices: [] });
    }
  });

  it('are compared between the requests of one claim', async () => {
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
