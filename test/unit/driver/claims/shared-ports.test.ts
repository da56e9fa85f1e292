import { describe, expect, it } from 'vitest';
import { checkPorts } from '../../../../src/driver/claims/shared-ports.ts';
import type { StoredClaim, StoredDevice } from '../../../../src/driver/model/index.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { allocated, DriverBench, fromClass } from './driver-bench.ts';

/** A claim with a bond over the two PFs of the bench. */
const bonded = (name: string, devices: [string, string], mode = '802.3ad') =>
  allocated(name, [], {
    requests: devices.map((device, index) => ({ name: `r${index}`, devices: [device] })),
    config: [fromClass({ bond: { name: 'bond0', mode } })],
  });
const single = (name: string, device: string, fields: object = {}) =>
  allocated(name, [device], { config: [fromClass(fields)] });

describe('checkPorts', () => {
  it('rejects a second bond in mode 802.3ad over a PF until the first claim is unprepared', async () => {
    using bench = new DriverBench();
    const [first, second] = [bonded('first', ['dev-0', 'dev-8']), bonded('second', ['dev-1', 'dev-9'])];
    expect(await bench.prepare(first)).toMatchObject({ devices: [] });
    expect(await bench.prepare(second)).toMatchObject({
      error: {
        code: 'port-taken',
        retriable: true,
        message:
          'claim default/second: device dev-1 cannot be in a bond of mode 802.3ad, since PF 0000:01:00.0 carries one with device dev-0 of claim default/first',
      },
    });
    // Neither is the first one compared with itself, nor does the refused one stay.
    expect(await bench.prepare(first)).toMatchObject({ devices: [] });
    expect(bench.store.claims()).toHaveLength(1);
    await bench.unprepare(first);
    expect(await bench.prepare(second)).toMatchObject({ devices: [] });
    expect(bench.shared).toEqual([]);
  });

  it('rejects the second of two 802.3ad bonds over one PF when both are prepared in one call', async () => {
    using bench = new DriverBench();
    const claims = [bonded('a', ['dev-0', 'dev-8']), bonded('b', ['dev-1', 'dev-9'])];
    const results = [...(await bench.prepareAll(claims)).values()];
    expect(results.filter((result) => 'error' in result)).toMatchObject([{ error: { code: 'port-taken' } }]);
  });

  it.each([
    ['a single VF', single('other', 'dev-2')],
    ['a bond in mode active-backup', bonded('other', ['dev-2', 'dev-9'], 'active-backup')],
  ])('reports %s over the ports of an 802.3ad bond, whichever of the two is prepared first', async (_what, other) => {
    for (const isFirst of [true, false]) {
      using bench = new DriverBench();
      const bond = bonded('lacp', ['dev-0', 'dev-8']);
      for (const claim of isFirst ? [bond, other] : [other, bond]) {
        expect(await bench.prepare(claim)).toMatchObject({ devices: [] });
      }
      const [one, two] = isFirst ? ['dev-0', 'default/lacp'] : ['dev-2', 'default/other'];
      expect(bench.shared[0]).toBe(
        `a bond of mode 802.3ad cannot share PF 0000:01:00.0: the switch may send to another port the frames of device ${one} of claim ${two}`,
      );
    }
  });

  it('allows bonds in mode active-backup to share their PFs', async () => {
    using bench = new DriverBench();
    await bench.prepare(bonded('first', ['dev-0', 'dev-8'], 'active-backup'));
    expect(await bench.prepare(bonded('second', ['dev-1', 'dev-9'], 'active-backup'))).toMatchObject({ devices: [] });
    expect(bench.shared).toEqual([]);
  });

  it.each([
    ['an address', { addresses: ['2001:db8::10/64'] }, { addresses: ['2001:DB8:0::10/48'] }, 'address 2001:db8::10'],
    ['a MAC address', { macAddress: '02:00:00:00:00:0a' }, { macAddress: '02:00:00:00:00:0A' }, 'MAC address'],
  ])('reports %s used by another VF of the same PF and VLAN', async (_what, fields, same, problem) => {
    using bench = new DriverBench();
    const inVlan = (vlan: number, more: object) => ({ ...more, vf: { vlan } });
    await bench.prepare(single('web-0', 'dev-0', inVlan(7, fields)));
    // In another VLAN, and on another PF.
    await bench.prepare(single('web-1', 'dev-1', inVlan(8, same)));
    await bench.prepare(single('web-2', 'dev-8', inVlan(7, same)));
    expect(bench.shared).toEqual([]);
    expect(await bench.prepare(single('web-3', 'dev-2', inVlan(7, same)))).toMatchObject({ devices: [] });
    expect(bench.shared).toEqual([
      expect.stringMatching(`^${problem}.* on PF 0000:01:00.0 .*of device dev-0 of claim default/web-0$`),
    ]);
  });

  it('examines each device of the node once, and names one conflicting device per problem', () => {
    let reads = 0;
    const deviceOf = (index: number): StoredDevice => {
      const addresses = Array.from({ length: 16 }, (_, n) => `2001:db8::${n + 1}/64`);
      const config = { addresses };
      const name = `dev-${index}`;
      const device = storedDevice({ name, pciAddress: name, request: 'r', pfAddress: '0000:01:00.0', config });
      const get = () => {
        reads++;
        return config;
      };
      return Object.defineProperty(device, 'config', { get });
    };
    const claimOf = (name: string, first: number, count: number): StoredClaim => {
      const devices = Array.from({ length: count }, (_, n) => deviceOf(first + n));
      return storedClaim({ identity: { namespace: 'apps', name, uid: name }, devices });
    };
    const { devices: own } = claimOf('own', 0, 32);
    const others = Array.from({ length: 16 }, (_, n) => claimOf(`other-${n}`, 32 * (n + 1), 32));
    const count = (claims: StoredClaim[]) => {
      reads = 0;
      const problems = checkPorts(allocated('own', []), own, () => claims);
      return { reads, problems };
    };
    const [alone, all] = [count([]), count(others)];
    expect(alone.problems).toHaveLength(16);
    expect(all.problems).toHaveLength(16);
    // Whether it is in a bond, and its addresses.
    expect(all.reads - alone.reads).toBe(2 * 16 * 32);
  });
});
