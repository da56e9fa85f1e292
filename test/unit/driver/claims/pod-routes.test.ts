import { expect, it } from 'vitest';
import { buildPod } from '../../../doubles/objects.ts';
import { allocated, DriverBench, fromClaim } from './driver-bench.ts';
import { refusal } from './driver-hooks.ts';

it.each([
  ['198.51.100.0/24', '198.51.100.0/24', '192.0.2.1', '192.0.2.9'],
  ['2001:db8:1::/48', '2001:DB8:1:0::/48', '2001:db8::1', '2001:db8::9'],
])(
  'checkPodRoutes rejects two interfaces of a pod with a route to %s',
  async (destination, same, gateway, otherGateway) => {
    using bench = new DriverBench();
    const pods = [buildPod('app')];
    const config = [fromClaim({ routes: [{ destination, gateway }] })];
    const requests = ['a', 'b'].map((name, index) => ({ name, devices: [`dev-${index}`] }));
    const problem = `routes: device dev-1 cannot have a route to ${destination} by ${gateway}, which dev-0 has by ${gateway}`;
    expect(await bench.prepare(allocated('twice', [], { pods, requests, config }))).toMatchObject(
      refusal('config-invalid', expect.stringContaining(problem)),
    );
    expect(await bench.prepare(allocated('first', ['dev-1'], { pods, config }))).toEqual({ devices: [] });
    const others = [fromClaim({ routes: [{ destination: same, gateway: otherGateway }] })];
    expect(await bench.prepare(allocated('second', ['dev-2'], { pods, config: others }))).toMatchObject(
      refusal(
        'config-invalid',
        expect.stringContaining(
          `device dev-2 cannot have a route to ${same} by ${otherGateway}, which dev-1 of claim default/first has by ${gateway}`,
        ),
      ),
    );
    const elsewhere = [fromClaim({ routes: [{ destination: same, gateway: otherGateway, table: 100 }] })];
    expect(await bench.prepare(allocated('table', ['dev-5'], { pods, config: elsewhere }))).toEqual({ devices: [] });
    // In another pod; and of members of one bond, which are one interface.
    expect(await bench.prepare(allocated('third', ['dev-3'], { config }))).toEqual({ devices: [] });
    const bonded = [fromClaim({ bond: { name: 'bond0' }, routes: [{ destination, gateway }] })];
    const members = ['dev-4', 'dev-9'].map((device, index) => ({ name: 'ab'[index] ?? '', devices: [device] }));
    expect(await bench.prepare(allocated('bonded', [], { requests: members, config: bonded }))).toEqual({
      devices: [],
    });
  },
);
