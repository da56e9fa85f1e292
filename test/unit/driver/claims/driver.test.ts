import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { buildPod, type RequestOptions } from '../../../doubles/objects.ts';
import { allocated, fromClaim, fromClass, vfOf } from './driver-bench.ts';
import { bench, refusal, useDriverBench } from './driver-hooks.ts';

useDriverBench();

describe('Driver.prepareResourceClaims', () => {
  it('returns an empty result and stores pod, devices and config', async () => {
    const claim = allocated('c', ['dev-1', 'dev-2'], { config: [fromClaim({ mtu: 1400 })] });
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    const [stored] = bench.store.claimsOfPod(claim.podUids[0] ?? '');
    expect(stored).toMatchObject({ identity: claim.identity, state: 'prepared' });
    expect(stored?.devices).toMatchObject([
      { name: 'dev-1', pciAddress: '0000:00:00.1', request: 'vf', config: { mtu: 1400 }, offered: vfOf('dev-1') },
      { name: 'dev-2', pciAddress: '0000:00:00.2' },
    ]);
    expect(bench.store.claimsOfPod('another pod')).toEqual([]);
    // Nothing is asked of the VFs from outside, except that they have an interface.
    expect([bench.control.count('apply'), bench.control.count('apply 0000:00:00.1 {"vf":{}}')]).toEqual([2, 1]);
  });

  it("reads the node's networks once per call, and only if a claim has addresses or routes", async () => {
    const claims = (fields: object) =>
      ['dev-1', 'dev-2'].map((device) =>
        allocated(`${Object.keys(fields)} ${device}`, [device], { config: [fromClaim(fields)] }),
      );
    await bench.prepareAll(claims({ mtu: 1400 }));
    expect(bench.networkReads).toBe(0);
    for (const claim of claims({ mtu: 1400 })) await bench.unprepare(claim);
    await bench.prepareAll(claims({ addresses: ['192.0.2.10/24'] }));
    expect([bench.networkReads, bench.store.claims().length]).toEqual([1, 2]);
  });

  it.each([66, 2_500, 5_000])(
    'rejects parameters nested %i levels deep without affecting other claims of the call',
    async (levels) => {
      const deep = JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`);
      const claims = [
        allocated('ipam', ['dev-1'], { config: [fromClaim({ ipam: { type: 'static', deep } })] }),
        allocated('cni', ['dev-2'], { config: [fromClass({ attach: 'cni', cni: { type: 'tuning', deep } })] }),
        allocated('unknown', ['dev-3'], { config: [fromClaim({ deep }), fromClaim({ deep })] }),
        allocated('plain', ['dev-4'], { config: [fromClaim({ mtu: 1400 })] }),
      ];
      const results = await bench.prepareAll(claims);
      const tooDeep = refusal('config-invalid', expect.stringContaining('must be nested at most 64 levels deep'));
      expect([...results.values()]).toEqual([{ devices: [] }, tooDeep, tooDeep, tooDeep]);
      expect(bench.store.claims().map(({ identity }) => identity.name)).toEqual(['plain']);
    },
  );

  it("ignores other drivers' parameters of any depth", async () => {
    const claim = allocated('c', ['dev-1'], { config: [fromClaim({ mtu: 1400 })] });
    const parameters = JSON.parse(`${'['.repeat(5_000)}${']'.repeat(5_000)}`);
    const entry = { source: 'FromClaim', requests: [], opaque: { driver: 'gpu.example.com', parameters } };
    claim.object.status!.allocation!.devices!.config!.push(entry as never);
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
  });

  it('prepares one claim with three VFs, and two claims of one pod', async () => {
    const pods = [buildPod('both')];
    const three = allocated('three', ['dev-1', 'dev-2', 'dev-3'], {
      pods,
      config: [fromClaim({ interfaceName: 'net%d' })],
    });
    const one = allocated('one', ['dev-4'], { pods, config: [fromClaim({ interfaceName: 'fast0' })] });
    const results = await bench.prepareAll([three, one]);
    expect([...results.values()]).toEqual([{ devices: [] }, { devices: [] }]);
    const claims = bench.store.claimsOfPod(pods[0]?.metadata.uid ?? '');
    const names = claims.flatMap(({ devices }) => devices.map(({ name, config }) => [name, config.interfaceName]));
    expect(names).toEqual([
      ['dev-4', 'fast0'],
      ['dev-1', 'net0'],
      ['dev-2', 'net1'],
      ['dev-3', 'net2'],
    ]);
    // The end of one claim leaves the other one alone.
    expect(await bench.unprepare(one)).toBeUndefined();
    expect(bench.store.claims().map(({ identity }) => identity.name)).toEqual(['three']);
    expect(bench.released).toEqual(['dev-4']);
  });

  it.each([9001, 1279])('rejects an MTU that the VF does not support, and releases the VF: %i', async (mtu) => {
    bench.control.mtuLimit.minBytes = 1280;
    const claim = allocated('c', ['dev-1'], { config: [fromClaim({ mtu })] });
    expect(await bench.prepare(claim)).toMatchObject(
      refusal(
        'config-invalid',
        expect.stringContaining(`mtu: ${mtu} is outside of 1280 to 9000, the range that its PF ens1 allows`),
      ),
    );
    expect(bench.store.claims()).toEqual([]);
    for (const fields of [{ mtu: 9000 }, { mtu, driver: 'vfio-pci' }]) {
      const other = allocated(Object.keys(fields).join('-'), ['dev-1'], { config: [fromClass(fields)] });
      expect(await bench.prepare(other)).not.toHaveProperty('error');
      await bench.unprepare(other);
    }
  });

  it('reports once to the pod that it waits, while binding its devices to a driver is slow', async () => {
    const pods = [buildPod('slow-pod')];
    const parameters = [fromClass({ driver: 'vfio-pci' })];
    const claims = [
      allocated('one', ['dev-0', 'dev-1'], { pods, config: parameters }),
      allocated('two', ['dev-2'], { pods, config: parameters }),
    ];
    const { clock, control, waits } = bench;
    control.onCall = async (call) => {
      if (!call.startsWith('apply')) return;
      clock.advance(1_800);
      await turn();
    };
    control.failures.set('apply 0000:00:00.2', new Error('EBUSY'));
    for (let attempt = 0; attempt < 2; attempt++) await bench.prepareAll(claims);
    const [uid] = claims[0]!.podUids;
    const device = 'device dev-1 (0000:00:00.1) of claim default/one';
    const wait = `${uid}: 1 of 3 devices are prepared after 3 s; now ${device}, which is bound to driver vfio-pci`;
    expect([waits, clock.sleeping()]).toEqual([[wait], []]);
    control.failures.clear();
    await bench.prepareAll(claims);
    // Another pod begins anew, and what waits for the API server is said, too.
    bench.checkAllocation = async () => {
      clock.advance(3_000);
      await turn();
    };
    for (const [name, devices] of [
      ['none', []],
      ['three', ['dev-3']],
    ] as const)
      await bench.prepare(allocated(name, [...devices]));
    const reason = 'waits for the API server, or until devices that it had before are restored';
    expect(waits.slice(1)).toEqual([
      expect.stringMatching(`: 0 of 1 devices are prepared after 3 s; claim default/three ${reason}$`),
    ]);
  });

  it('reports a device that is not on this node', async () => {
    expect(await bench.prepare(allocated('c', ['gone']))).toMatchObject(
      refusal('device-unknown', 'claim default/c: this node has no device node-1/gone'),
    );
  });

  it.each([false, true])(
    'rejects a device of another node, even if a local device has the same name: adminAccess %s',
    async (adminAccess) => {
      const own = { name: 'own', devices: ['dev-2'] };
      const foreign = { name: 'vf', devices: [{ device: 'dev-1', pool: 'node-2', adminAccess }] };
      const { error } = (await bench.prepare(allocated('c', [], { requests: [own, foreign] }))) as { error: Error };
      expect(error).toMatchObject({ code: 'pool-foreign', claim: 'default/c', device: 'dev-1', retriable: false });
      expect(explain(error)).toBe(
        'claim default/c: request vf is allocated device dev-1 of pool node-2, but the pool of this node is node-1 ' +
          '(find the ResourceSlice with spec.pool.name node-2 whose spec.nodeName is not node-2, ' +
          'find out which account has written it, and delete it; then delete the pod)',
      );
      expect([bench.store.claims(), bench.control.calls]).toEqual([[], []]);
    },
  );

  it('rejects equal interface names in a pod, within one claim and between two claims', async () => {
    const pods = [buildPod('app')];
    const twice = allocated('twice', [], {
      pods,
      requests: ['a', 'b'].map((name, index) => ({ name, devices: [`dev-${index}`] })),
      config: [fromClaim({ interfaceName: 'net1' })],
    });
    expect(await bench.prepare(twice)).toMatchObject(
      refusal('config-invalid', expect.stringContaining('device dev-1 cannot have the name net1, which dev-0 has')),
    );
    const config = [fromClaim({ interfaceName: 'net1' })];
    expect(await bench.prepare(allocated('first', ['dev-1'], { pods, config }))).toEqual({ devices: [] });
    expect(await bench.prepare(allocated('second', ['dev-2'], { pods, config }))).toMatchObject(
      refusal('config-invalid', expect.stringContaining('which dev-1 of claim default/first has')),
    );
    expect(await bench.prepare(allocated('third', ['dev-3'], { config }))).toEqual({ devices: [] });
  });

  it('rejects equal interface names when a claim passes to a pod that has another claim', async () => {
    const [first, second] = [buildPod('first'), buildPod('second')];
    const claimOf = (name: string, device: string, pod: typeof first) =>
      allocated(name, [device], { pods: [pod], uid: `uid-of-${name}`, config: [fromClaim({ interfaceName: 'net1' })] });
    await bench.prepare(claimOf('passing', 'dev-1', first));
    const answers = await bench.prepareAll([claimOf('new', 'dev-2', second), claimOf('passing', 'dev-1', second)]);
    expect(answers.get('uid-of-passing')).toEqual({ devices: [] });
    const problem = expect.stringContaining('cannot have the name net1, which dev-1 of claim default/passing has');
    expect(answers.get('uid-of-new')).toMatchObject(refusal('config-invalid', problem));
  });
});

describe('a bond', () => {
  const bond = { name: 'bond0' };
  const oneEach = ['dev-1', 'dev-9'].map((device, index) => ({ name: 'ab'[index] ?? '', devices: [device] }));
  const bonded = (config: ReturnType<typeof fromClaim>[], requests: RequestOptions[] = oneEach) =>
    allocated('c', [], { requests, config });

  it.each<[string, RequestOptions[]]>([
    ['two requests', oneEach],
    ['one request', [{ name: 'a', devices: ['dev-1', 'dev-9'] }]],
  ])("of two PFs' VFs in %s is prepared with its settings", async (_, requests) => {
    const fields = { bond, addresses: ['192.0.2.7/24'], mtu: 1400 };
    expect(await bench.prepare(bonded([fromClaim(fields)], requests))).toEqual({ devices: [] });
    const [{ devices = [] } = {}] = bench.store.claims();
    expect(devices.map(({ config }) => config)).toEqual([fields, fields]);
  });

  it.each<[string, ReturnType<typeof fromClaim>[], RequestOptions[]?]>([
    ['has one member, device dev-1 of request a, and needs two', [fromClaim({ bond }, ['a'])]],
    [
      'has dev-1 and dev-2, all of PF 0000:01:00.0: give the claim the constraint distinctAttribute: sriov.netdra.dev/pfPciAddress',
      [fromClaim({ bond })],
      [{ name: 'a', devices: ['dev-1', 'dev-2'] }],
    ],
    [
      'has bond {"name":"bond0"} from request a, and {"name":"bond0","miimon":50} from request b',
      [fromClaim({ bond }), fromClaim({ bond: { ...bond, miimon: 50 } }, ['b'])],
    ],
    [
      'has addresses nothing from request a, and ["192.0.2.7/24"] from request b',
      [fromClaim({ bond }), fromClaim({ addresses: ['192.0.2.7/24'] }, ['b'])],
    ],
    [
      'has mtu 1400 from request a, and 1500 from request b',
      [fromClaim({ bond, mtu: 1400 }), fromClaim({ mtu: 1500 }, ['b'])],
    ],
  ])('is rejected if it %s', async (problem, config, requests) => {
    const message = expect.stringContaining(`bond: bond0 ${problem}`);
    expect(await bench.prepare(bonded(config, requests))).toMatchObject(refusal('config-invalid', message));
    expect(bench.store.claims()).toEqual([]);
  });

  it.each([
    ['interfaceName', 'bond: the bond cannot have the name bond0, which dev-1 has', 'bond0'],
    ['bond', 'bond: the bond cannot have the name bond0, which a bond of claim default/first has', undefined],
  ])('is rejected if another interface of the pod has its name: %s', async (_, problem, interfaceName) => {
    const pods = [buildPod('app')];
    const of = (name: string, devices: string[]) =>
      allocated(name, [], {
        pods,
        requests: devices.map((device, index) => ({ name: `r${index}`, devices: [device] })),
        config: [fromClaim({ bond }), ...(interfaceName === undefined ? [] : [fromClaim({ interfaceName }, ['r0'])])],
      });
    if (interfaceName === undefined)
      expect(await bench.prepare(of('first', ['dev-2', 'dev-8']))).toEqual({ devices: [] });
    const answer = await bench.prepare(of('second', ['dev-1', 'dev-9']));
    expect(answer).toMatchObject(refusal('config-invalid', expect.stringContaining(problem)));
  });

  it('is rejected for VFs that an administrator bound to vfio', async () => {
    bench.control.drivers.set('0000:00:00.9', 'vfio-pci');
    const message = expect.stringContaining('bond: bond0 cannot be combined with driver "vfio-pci"');
    expect(await bench.prepare(bonded([fromClaim({ bond })]))).toMatchObject(refusal('config-invalid', message));
  });
});

describe('a prepared device', () => {
  const inUse = refusal(
    'device-in-use',
    'device dev-1 (0000:00:00.1) cannot be prepared for claim default/second: it is prepared for claim default/first',
  );

  it('is denied to the second of two claims in one call', async () => {
    const [first, second] = [allocated('first', ['dev-1']), allocated('second', ['dev-1', 'dev-2'])];
    const results = await bench.prepareAll([first, second]);
    expect(results.get(first.identity.uid)).toEqual({ devices: [] });
    expect(results.get(second.identity.uid)).toMatchObject(inUse);
    // Nothing is kept of the refused one.
    expect(await bench.prepare(allocated('third', ['dev-2']))).toEqual({ devices: [] });
  });

  it('has its state recorded for the next claim only after it was restored; until then that claim is refused', async () => {
    const [first, second] = ['first', 'second'].map((name) => allocated(name, ['dev-1'])) as [
      AllocatedClaim,
      AllocatedClaim,
    ];
    await bench.prepare(first);
    const { promise: isRead, resolve: read } = Promise.withResolvers<void>();
    let ending: Promise<unknown> | undefined;
    bench.control.onCall = async (call) => {
      // In the middle of what is done to it.
      if (call.startsWith('restore')) await Promise.race([isRead, preparing]);
      if (!call.startsWith('read')) return;
      read();
      await ending;
    };
    let preparing: Promise<unknown> | undefined;
    ending = bench.unprepare(first);
    preparing = bench.prepare(second);
    expect(await preparing).toMatchObject(inUse);
    expect(await ending).toBeUndefined();
    expect(await bench.prepare(second)).toEqual({ devices: [] });
  });

  it('belongs to only one of many concurrent claims', async () => {
    const claims = Array.from({ length: 12 }, (_, index) =>
      allocated(`c${index}`, [`dev-${index % 3}`, `dev-${3 + (index % 2)}`], {
        config: [fromClass({ vf: { vlan: 7 } })],
      }),
    );
    bench.control.onCall = () => new Promise((resolve) => setImmediate(resolve));
    const holders = new Map<string, string>();
    await Promise.all(
      claims.map(async (claim) => {
        for (let attempt = 0; attempt < 20; attempt++) {
          const result = await bench.prepare(claim);
          if (result === undefined || 'error' in result) {
            expect(result).toMatchObject(refusal('device-in-use'));
            await new Promise((resolve) => setImmediate(resolve));
            continue;
          }
          for (const { device } of claim.results) {
            expect(holders.get(device), `${device} is held already`).toBeUndefined();
            holders.set(device, claim.identity.uid);
          }
          await new Promise((resolve) => setImmediate(resolve));
          for (const { device } of claim.results) holders.delete(device);
          expect(await bench.unprepare(claim)).toBeUndefined();
          return;
        }
      }),
    );
    expect(bench.store.claims()).toEqual([]);
    const served = bench.control.count('access') / 2;
    expect(served).toBeGreaterThanOrEqual(3);
    expect([bench.control.count('apply'), bench.control.count('restore')]).toEqual([2 * served, 2 * served]);
  });
});

describe('a VF with guaranteed bandwidth', () => {
  const bandwidth = { guaranteedMbps: 400, portMbps: 1000 };
  const problem = (message: string) => refusal('config-invalid', expect.stringContaining(message));

  it.each([
    [{}, false, { maxMbps: 400 }],
    [{ maxTxRate: 400, minTxRate: 0 }, false, { minMbps: 0, maxMbps: 400 }],
    [{}, true, { minMbps: 400 }],
    [{ maxTxRate: 900 }, true, { minMbps: 400, maxMbps: 900 }],
  ] as const)('gets rates from vf settings %j and a policy with burst: %s', async (vf, burst, rate) => {
    bench.bandwidth = { ...bandwidth, ...(burst && { burst }) };
    await bench.prepare(allocated('c', ['dev-1'], { config: [fromClass({ vf })] }));
    expect(bench.control.calls).toContainEqual(`apply 0000:00:00.1 ${JSON.stringify({ vf: { rate } })}`);
  });

  it.each([
    [{ maxTxRate: 500 }, false, 'vf.maxTxRate: 500 Mbit/s are requested, but the inventory policy guarantees 400'],
    [{ minTxRate: 300 }, false, 'vf.minTxRate: 300 Mbit/s are requested, but the inventory policy guarantees 400'],
    [{ minTxRate: 500 }, true, 'vf.minTxRate: 500 Mbit/s are requested'],
    [{ maxTxRate: 300 }, true, 'vf.maxTxRate: 300 Mbit/s are less than the 400 that'],
  ] as const)('is rejected if vf settings %j contradict a policy with burst: %s', async (vf, burst, message) => {
    bench.bandwidth = { ...bandwidth, ...(burst && { burst }) };
    expect(await bench.prepare(allocated('c', ['dev-1'], { config: [fromClass({ vf })] }))).toMatchObject(
      problem(message),
    );
    expect(bench.store.claims()).toEqual([]);
  });

  it('rejects a rate above the known speed of its port, naming both values', async () => {
    const above = (vf: object) => bench.prepare(allocated('above', ['dev-1'], { config: [fromClass({ vf })] }));
    bench.linkSpeedMbps = 1_000;
    for (const field of ['minTxRate', 'maxTxRate']) {
      const text = `vf.${field}: 1001 Mbit/s are requested, but the port of device dev-1 has 1000`;
      expect(await above({ [field]: 1_001 })).toMatchObject(problem(text));
    }
    expect(bench.store.claims()).toEqual([]);
    expect(await above({ minTxRate: 500, maxTxRate: 1_000 })).toEqual({ devices: [] });
    bench.linkSpeedMbps = undefined;
    const unknown = { config: [fromClass({ vf: { maxTxRate: 1_001 } })] };
    expect(await bench.prepare(allocated('unknown', ['dev-2'], unknown))).toEqual({ devices: [] });
  });

  it('is not prepared until another claim ends if its port has too little bandwidth left', async () => {
    bench.bandwidth = bandwidth;
    const [first, second, third] = ['a', 'b', 'c'].map((name, index) => allocated(name, [`dev-${index}`]));
    const results = [...(await bench.prepareAll([first!, second!])).values()];
    expect(results).toEqual([{ devices: [] }, { devices: [] }]);
    const message =
      'claim default/c needs 400 Mbit/s of the port of PF 0000:01:00.0, but other claims have 800 of its 1000';
    expect(await bench.prepare(third!)).toMatchObject(refusal('bandwidth-exceeded', message));
    expect(await bench.prepare(first!)).not.toHaveProperty('error');
    await bench.unprepare(second!);
    expect(await bench.prepare(third!)).not.toHaveProperty('error');
    // Two of one claim count both.
    await bench.unprepare(third!);
    expect(await bench.prepare(allocated('d', ['dev-3', 'dev-4']))).toMatchObject(
      refusal('bandwidth-exceeded', expect.stringContaining('needs 800 Mbit/s')),
    );
  });

  it('occupies bandwidth of its port until unprepare, even if a new claim has the same name', async () => {
    bench.bandwidth = { guaranteedMbps: 600, portMbps: 1000 };
    expect(await bench.prepare(allocated('a', ['dev-1']))).not.toHaveProperty('error');
    const next = allocated('a', ['dev-2']);
    expect(await bench.prepare({ ...next, identity: { ...next.identity, uid: 'next' } })).toMatchObject(
      refusal('bandwidth-exceeded', expect.stringContaining('but other claims have 600 of its 1000')),
    );
  });
});

describe('a request with admin access', () => {
  const observed = { device: 'dev-1', adminAccess: true };
  const answer = {
    requests: ['watch'],
    poolName: 'node-1',
    deviceName: 'dev-1',
    cdiDeviceIds: [],
    metadata: { attributes: { 'resource.kubernetes.io/pciBusID': { string: '0000:00:00.1' } } },
  };
  const monitor = () =>
    allocated('monitor', [], {
      requests: [{ name: 'watch', devices: [observed] }],
      config: [fromClass({ vf: { trust: true } })],
    });

  it('describes a device of another claim without changing device or claim', async () => {
    const user = allocated('user', ['dev-1'], { config: [fromClass({ vf: { trust: true } })] });
    await bench.prepare(user);
    const before = [...bench.control.calls];
    const claim = monitor();
    for (const _ of ['prepared', 'again']) expect(await bench.prepare(claim)).toEqual({ devices: [answer] });
    expect(bench.store.holderOf('0000:00:00.1')?.identity).toEqual(user.identity);
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.control.calls).toEqual(before);
    expect([bench.released, bench.store.claims().length]).toEqual([[], 1]);
  });

  it('can be in a claim with requests of other devices, or alone in a claim of several pods', async () => {
    const requests = [
      { name: 'watch', devices: [observed] },
      { name: 'own', devices: ['dev-2'] },
    ];
    const both = allocated('both', [], { requests });
    expect(await bench.prepare(both)).toEqual({ devices: [answer] });
    expect(bench.store.claim(both.identity.uid)?.devices.map(({ name }) => name)).toEqual(['dev-2']);
    const pods = ['a', 'b'].map((name) => buildPod(name));
    const shared = allocated('shared', [], { requests: [{ name: 'watch', devices: [observed] }], pods });
    expect(await bench.prepare(shared)).toEqual({ devices: [answer] });
  });

  it('is rejected for a device that the node lacks', async () => {
    const requests = [{ name: 'watch', devices: [{ ...observed, device: 'other' }] }];
    expect(await bench.prepare(allocated('lost', [], { requests }))).toMatchObject(refusal('device-unknown'));
  });
});

describe('Driver.unprepareResourceClaims', () => {
  it('restores devices once, and ignores unknown claims', async () => {
    const claim = allocated('c', ['dev-1', 'dev-2']);
    await bench.prepare(claim);
    for (let round = 0; round < 2; round++) expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.released).toEqual(['dev-1', 'dev-2']);
    expect(bench.store.claims()).toEqual([]);
    expect(await bench.prepare(allocated('next', ['dev-1']))).toEqual({ devices: [] });
  });

  it('restores all other devices if one device cannot be detached, and restores that device later', async () => {
    const claim = allocated('c', ['dev-1', 'dev-2'], { config: [fromClass({ vf: { trust: true } })] });
    await bench.prepare(claim);
    bench.releaseErrors.set('dev-1', new Error('stuck'));
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(bench.released).toEqual(['dev-2']);
    expect([1, 2].map((index) => bench.control.count(`restore 0000:00:00.${index}`))).toEqual([1, 1]);
    expect(bench.store.unrestored().map(({ device, reason }) => [device.name, reason])).toEqual([['dev-1', 'stuck']]);
    expect(await bench.prepare(allocated('next', ['dev-2']))).toEqual({ devices: [] });
    await bench.restoreAll();
    expect(bench.store.unrestored().map(({ device }) => device.name)).toEqual(['dev-1']);
    bench.releaseErrors.clear();
    await bench.restoreAll();
    expect([bench.released, bench.store.unrestored()]).toEqual([['dev-2', 'dev-1'], []]);
  });
});
