import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AddressWish } from '../../../../src/driver/addresses/index.ts';
import { DriverError } from '../../../../src/driver/model/index.ts';
import { KubeError, type OwnerReference } from '../../../../src/framework/kube/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { allocated, DriverBench, fromClass } from './driver-bench.ts';

const addresses = ['192.0.2.7/24', '2001:db8::7/64'];
const macAddress = '02:00:00:00:00:07';
const statefulSet = { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'web', uid: 'set-1', controller: true };

describe('Driver with addressPool', () => {
  let bench: DriverBench;
  /** What the pool was asked for. */
  let wishes: AddressWish[];
  /** Of which prepared claims the leases were renewed. */
  let renewed: [AddressWish, readonly string[]][];
  let failure: Error | undefined;
  /** Owners of the pod that has the claim. */
  let owners: OwnerReference[];
  let podUid: string | undefined;

  beforeEach(() => {
    wishes = [];
    renewed = [];
    failure = undefined;
    podUid = undefined;
    owners = [statefulSet];
    bench = new DriverBench(undefined, undefined, {
      addressPools: {
        assign: async (wish) => {
          wishes.push(wish);
          if (failure !== undefined) throw failure;
          return { addresses, macAddress };
        },
        renew: async (wish, of) => {
          renewed.push([wish, of]);
          if (failure !== undefined) throw failure;
        },
      },
      pods: { readPod: async () => ({ metadata: { uid: podUid ?? 'unknown', ownerReferences: owners } }) },
    });
  });
  afterEach(() => bench[Symbol.dispose]());

  const claimWith = (fields: object, request = 'vf') =>
    allocated('c', ['dev-1'], { requests: [{ name: request, devices: ['dev-1'] }], config: [fromClass(fields)] });

  /** As the controller makes it from a template for a pod. */
  function templateClaim(pod: string, fields: object = { addressPool: { name: 'lan' } }): AllocatedClaim {
    const claim = claimWith(fields);
    podUid = claim.podUids[0] ?? '';
    const owner = { apiVersion: 'v1', kind: 'Pod', name: pod, uid: podUid, controller: true };
    Object.assign(claim.object.metadata ?? {}, { ownerReferences: [owner] });
    return { ...claim, podClaimName: 'net' };
  }

  async function refused(claim: AllocatedClaim): Promise<string> {
    const result = await bench.prepare(claim);
    if (result?.error === undefined) throw new Error('the claim was prepared');
    return explain(result.error);
  }

  const stored = ({ identity }: AllocatedClaim) => bench.store.claim(identity.uid)?.devices[0]?.config;

  it('stores addresses and MAC from the pool, and asks the pool again only after unprepare', async () => {
    const claim = templateClaim('web-0');
    for (let call = 0; call < 2; call++) expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect(wishes).toEqual([
      {
        namespace: 'default',
        claim: { name: 'c', uid: claim.identity.uid, request: 'vf' },
        pod: { name: 'c-pod', uid: claim.podUids[0] },
        pool: 'lan',
        key: 'web-0/net/vf',
        name: expect.stringMatching(/^web-0-[0-9a-f]{16}$/),
        owner: { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'web', uid: 'set-1' },
      },
    ]);
    expect(stored(claim)).toMatchObject({ addresses, macAddress });
    expect(bench.control.calls).toContain(`apply 0000:00:00.1 {"vf":{"hardwareAddress":"${macAddress}"}}`);
    await bench.unprepare(claim);
    await bench.prepare(claim);
    expect(wishes).toHaveLength(2);
    expect(wishes[1]).toEqual(wishes[0]);
  });

  it("renews the leases of a claim that is prepared again, even if the pod's StatefulSet is gone", async () => {
    const claim = templateClaim('web-0');
    await bench.prepare(claim);
    owners = [];
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    const { owner: _, ...wish } = wishes[0]!;
    expect(renewed).toEqual([[wish, addresses]]);
  });

  it('renews the leases of a claim that passes to the next pod, and fails if that is impossible', async () => {
    const claim = claimWith({ addressPool: { name: 'lan', key: 'db' } });
    await bench.prepare(claim);
    const reservedFor = [{ resource: 'pods', name: 'next', uid: 'next' }];
    const object = { ...claim.object, status: { ...claim.object.status, reservedFor } };
    const passed = { ...claim, podUids: ['next'], object };
    failure = new DriverError('address-held', 'another key has it', { retriable: true });
    expect(await refused(passed)).toBe('another key has it');
    failure = undefined;
    expect(await bench.prepare(passed)).toEqual({ devices: [] });
    expect(renewed.at(-1)).toEqual([{ ...wishes[0], pod: { name: 'next', uid: 'next' } }, addresses]);
  });

  it('explains why the API server does not renew the leases of a claim', async () => {
    const claim = claimWith({ addressPool: { name: 'lan', key: 'db' } });
    await bench.prepare(claim);
    failure = new KubeError('api-forbidden', 'no permission');
    expect((await bench.prepare(claim))?.error).toMatchObject({ code: 'address-pool-unusable', retriable: true });
    expect(await refused(claim)).toMatch(
      /request vf cannot renew its addresses of NetworkAddressPool lan: no permission.*permissions of the chart/,
    );
  });

  it("sets no owner for an explicit key, and prefers the class's MAC to the pool's MAC", async () => {
    const own = { macAddress: '02:00:00:00:00:99', addressPool: { name: 'lan', key: 'db' } };
    const claim = claimWith(own);
    await bench.prepare(claim);
    expect(wishes).toMatchObject([{ key: 'db', name: expect.stringMatching(/^db-[0-9a-f]{16}$/), owner: undefined }]);
    expect(stored(claim)).toMatchObject({ addresses, macAddress: '02:00:00:00:00:99' });
  });

  it('gives the NetworkAddresses of one key in two pools different names', async () => {
    await bench.prepare(claimWith({ addressPool: { name: 'lan', key: 'db' } }));
    const other = allocated('d', ['dev-2'], { config: [fromClass({ addressPool: { name: 'wan', key: 'db' } })] });
    await bench.prepare(other);
    expect(new Set(wishes.map(({ name }) => name)).size).toBe(2);
  });

  it.each<[string, (claim: AllocatedClaim) => unknown, string]>([
    ['not from a template', (claim) => Object.assign(claim, { podClaimName: undefined }), 'is not from a template'],
    [
      'not named after a claim of the pod',
      (claim) => Object.assign(claim, { podClaimName: '../x' }),
      'is not from a template',
    ],
    [
      'of a pod that the claim is not reserved for',
      (claim) => Object.assign(claim, { podUids: ['other'] }),
      'is not from a',
    ],
    ['of a pod that was replaced', () => (podUid = 'other'), 'pod web-0 got replaced'],
    ['of a pod without a controller', () => (owners = []), 'pod web-0 is not of a StatefulSet'],
    [
      'of a pod that only has the name of a StatefulSet pod',
      () => (owners = [{ ...statefulSet, controller: false }]),
      'is not of a',
    ],
    ['of a ReplicaSet', () => (owners = [{ ...statefulSet, kind: 'ReplicaSet' }]), 'is not of a StatefulSet'],
    ['of a StatefulSet of another API group', () => (owners = [{ ...statefulSet, apiVersion: 'x/v1' }]), 'is not of a'],
    [
      'of a StatefulSet with another name',
      () => (owners = [{ ...statefulSet, name: 'we' }]),
      'is not of a StatefulSet',
    ],
  ])('rejects a claim without a key that is %s', async (_what, change, problem) => {
    const claim = templateClaim('web-0');
    change(claim);
    const text = await refused(claim);
    expect(text).toMatch(/^claim default\/c: addressPool of request vf has no key, and /);
    expect(text).toContain(problem);
    expect(wishes).toEqual([]);
    expect(stored(claim)).toBeUndefined();
  });

  it('rejects pods whose names cannot be part of a key', async () => {
    owners = [{ ...statefulSet, name: 'web.x' }];
    expect(await refused(templateClaim('web.x-0'))).toContain('the name of pod web.x-0 has a dot');
    owners = [{ ...statefulSet, name: 'w'.repeat(70) }];
    expect(await refused(templateClaim(`${'w'.repeat(70)}-0`))).toContain('or more than 63 characters');
  });

  it('rejects two requests with the same key before it asks the pool for addresses', async () => {
    const requests = ['a', 'b'].map((name, index) => ({ name, devices: [`dev-${index + 1}`] }));
    const claim = allocated('c', ['dev-1', 'dev-2'], {
      requests,
      config: [fromClass({ addressPool: { name: 'lan', key: 'db' } })],
    });
    expect(await refused(claim)).toMatch(
      /requests a and b have the same addressPool.key db.*use one key for each request/,
    );
    expect(wishes).toEqual([]);
  });

  it('rejects a request for several devices', async () => {
    const claim = allocated('c', ['dev-1', 'dev-2'], {
      config: [fromClass({ addressPool: { name: 'lan', key: 'a' } })],
    });
    expect(await refused(claim)).toContain('addressPool: can be set for one device only');
  });

  it.each<[string, object, string]>([
    ['an MTU', { mtu: 1_000 }, 'addresses[1]: 2001:db8::7/64 is IPv6, which needs an mtu of at least 1280'],
    ['a sysctl', { sysctls: { 'net.ipv6.conf.IFNAME.disable_ipv6': 1 } }, 'addresses[1]: 2001:db8::7/64 is IPv6'],
    ['a source', { routes: [{ destination: '198.51.100.0/24', source: '192.0.2.8' }] }, 'source is 192.0.2.8'],
    ['a route', { routes: [{ destination: '192.0.2.0/24', gateway: '192.0.2.1' }] }, 'the kernel already has a route'],
  ])('rejects %s that contradicts the addresses of the pool', async (_what, fields, problem) => {
    const text = await refused(claimWith({ addressPool: { name: 'lan', key: 'db' }, ...fields }));
    expect(text).toContain('with the addresses of NetworkAddressPool lan: ');
    expect(text).toContain(problem);
    expect(bench.control.calls).toEqual([]);
  });

  it('changes no VF if the pool gives no address, and reports the reason', async () => {
    const claim = claimWith({ addressPool: { name: 'lan', key: 'db' } });
    failure = new DriverError('address-held', 'another claim has it', { retriable: true });
    expect(await refused(claim)).toBe('another claim has it');
    failure = new KubeError('api-unserved', 'GET /apis/netdra.dev: 404');
    expect(await refused(claim)).toMatch(
      /^claim default\/c: request vf gets no address of NetworkAddressPool lan.*GET .*CustomResourceDefinitions of the chart/s,
    );
    expect(bench.control.calls).toEqual([]);
    failure = undefined;
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
  });
});
