import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Kubelet, KubeletError } from '../../doubles/kubelet.ts';
import type { PrepareResponse, WireClaim } from '../../doubles/kubelet-dra-client.ts';
import { buildClaim, buildPod, testDriver as driver, generateClaim } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { prepared, TestDriver, type TestDriverOptions, unprepared, wireDevice } from './test-driver.ts';

let dir: ReturnType<typeof tempDir>;
let stack: DisposableStack;
let claims: ResourceV1ResourceClaim[];

beforeEach(() => {
  stack = new DisposableStack();
  dir = stack.use(tempDir());
  mkdirSync(join(dir.path, 'dra'));
  claims = [];
});
afterEach(() => stack.dispose());

/** A kubelet and drivers that it knows already. */
async function start(...drivers: Partial<TestDriverOptions>[]): Promise<[Kubelet, ...TestDriver[]]> {
  const getClaim = async (namespace: string, name: string) => {
    const found = claims.find(({ metadata }) => metadata?.namespace === namespace && metadata?.name === name);
    if (found === undefined) throw new Error(`resourceclaims.resource.k8s.io "${name}" not found`);
    return found;
  };
  const plugins: TestDriver[] = [];
  for (const options of drivers) plugins.push(stack.use(await TestDriver.start({ dir: dir.path, driver, ...options })));
  const kubelet = stack.use(await Kubelet.start({ registryDir: dir.path, getClaim, callTimeoutMs: 300 }));
  for (const options of drivers) await kubelet.waitForDriver(options.driver ?? driver);
  return [kubelet, ...plugins];
}

function podWith(...names: string[]) {
  const pod = buildPod('pod', { resourceClaims: names.map((name) => ({ name, resourceClaimName: name })) });
  for (const name of names)
    claims.push(buildClaim(name, { requests: [{ name: 'r', devices: [`vf-${name}`] }], pods: [pod] }));
  return pod;
}

const oneDevice = (wire: WireClaim[]) =>
  prepared(wire, ({ name }) => [wireDevice(`vf-${name}`, ['r'], [`a/b=${name}`])]);

describe('prepare', () => {
  it('sends all claims of a pod in one call, and nothing when they are prepared', async () => {
    const [kubelet, plugin] = await start({ prepare: oneDevice });
    const pod = podWith('one', 'two');
    await kubelet.prepare(pod);
    await kubelet.prepare(pod);
    expect(plugin?.calls).toHaveLength(1);
    expect(plugin?.calls[0]?.claims).toEqual(
      claims.map(({ metadata }) => ({ namespace: 'default', name: metadata?.name, uid: metadata?.uid })),
    );
    expect(kubelet.claimInfo('default', 'one')).toMatchObject({ prepared: true });
    expect(kubelet.cdiDevicesForContainer(pod, 'main')).toEqual(['a/b=one', 'a/b=two']);
  });

  it('calls every driver of the allocation, and only those', async () => {
    const [kubelet, first, second, third] = await start({}, { driver: 'b.example' }, { driver: 'c.example' });
    const pod = podWith();
    pod.spec = { ...pod.spec, containers: [], resourceClaims: [{ name: 'x', resourceClaimName: 'x' }] };
    const devices = ['vf-0', { driver: 'b.example', device: 'gpu-0' }];
    claims.push(buildClaim('x', { requests: [{ name: 'r', devices }], pods: [pod] }));
    await kubelet.prepare(pod);
    expect([first, second, third].map((plugin) => plugin?.calls.length)).toEqual([1, 1, 0]);
  });

  it('resolves claims made from a template', async () => {
    const [kubelet, plugin] = await start({});
    const pod = buildPod('pod', { resourceClaims: [{ name: 'net', resourceClaimTemplateName: 't' }] });
    await expect(kubelet.prepare(pod)).rejects.toThrow('pod claim net: ResourceClaim not created yet');
    const claim = generateClaim(pod, 'net', { requests: [{ name: 'r', devices: ['vf-0'] }] });
    claims.push(claim);
    await kubelet.prepare(pod);
    expect(plugin?.calls[0]?.claims[0]?.name).toBe(claim.metadata.name);
    claim.metadata.name = 'stolen';
    Object.assign(claim.metadata, { ownerReferences: [] });
    pod.status = { resourceClaimStatuses: [{ name: 'net', resourceClaimName: 'stolen' }] };
    await expect(kubelet.prepare(pod)).rejects.toThrow(
      'ResourceClaim stolen was not created for pod pod (pod is not owner)',
    );
  });

  it('refuses claims that the pod may not use, and touches none of the others', async () => {
    const [kubelet, plugin] = await start({});
    const pod = podWith('mine', 'other');
    const other = claims[1]!;
    other.status!.reservedFor = [];
    await expect(kubelet.prepare(pod)).rejects.toThrow(/pod pod \(.*\) is not allowed to use ResourceClaim other/);
    const reserved = buildClaim('other', { requests: [], allocated: false });
    reserved.status = { reservedFor: [{ resource: 'pods', name: 'pod', uid: pod.metadata.uid }] };
    claims[1] = reserved;
    await expect(kubelet.prepare(pod)).rejects.toThrow('ResourceClaim other is not allocated');
    claims.pop();
    await expect(kubelet.prepare(pod)).rejects.toThrow(
      'prepare dynamic resources: fetch ResourceClaim other: resourceclaims.resource.k8s.io "other" not found',
    );
    expect(plugin?.calls).toEqual([]);
    expect(kubelet.claimInfo('default', 'mine')).toBeUndefined();
  });

  it('refuses a pod whose driver is not registered, even if the claim is prepared', async () => {
    const [kubelet, plugin] = await start({});
    const pod = podWith('one');
    await kubelet.prepare(pod);
    plugin?.[Symbol.dispose]();
    await kubelet.until(() => kubelet.plugins().length === 0);
    await expect(kubelet.prepare(pod)).rejects.toThrow(`DRA driver ${driver} is not registered`);
  });

  it.each<[string, (wire: WireClaim[]) => PrepareResponse | Error | Promise<PrepareResponse>, string]>([
    ['an RPC error', () => new Error('boom'), 'NodePrepareResources: rpc error: code = Unknown desc = boom'],
    ['no answer in time', () => new Promise(() => {}), 'NodePrepareResources: rpc error: code = DeadlineExceeded'],
    [
      'an error of a claim',
      (wire) => ({ claims: { [wire[0]!.uid]: { devices: [], error: 'no such VF' } } }),
      'NodePrepareResources failed for ResourceClaim one: no such VF',
    ],
    [
      'an unknown claim',
      () => ({ claims: { stranger: { devices: [], error: '' } } }),
      'NodePrepareResources returned result for unknown claim UID stranger',
    ],
    ['a missing claim', () => ({ claims: {} }), 'NodePrepareResources skipped 1 ResourceClaims'],
  ])('fails on %s', async (_what, prepare, message) => {
    const [kubelet] = await start({ prepare });
    const pod = podWith('one');
    const error: unknown = await kubelet.prepare(pod).catch((reason) => reason);
    expect(error).toBeInstanceOf(KubeletError);
    expect((error as Error).message).toContain(`prepare dynamic resources: ${message}`);
    expect(kubelet.claimInfo('default', 'one')).toMatchObject({ prepared: false });
  });

  it('asks all drivers again after one has failed, and adds what they answer to what is there', async () => {
    let isBroken = true;
    const prepare = (wire: WireClaim[]) => (isBroken ? new Error('not now') : oneDevice(wire));
    const [kubelet, first] = await start({ prepare: oneDevice }, { driver: 'b.example', prepare });
    const pod = podWith();
    pod.spec = { ...pod.spec, containers: [], resourceClaims: [{ name: 'x', resourceClaimName: 'x' }] };
    claims.push(
      buildClaim('x', {
        requests: [{ name: 'r', devices: ['vf-0', { driver: 'b.example', device: 'd' }] }],
        pods: [pod],
      }),
    );
    await expect(kubelet.prepare(pod)).rejects.toThrow('not now');
    isBroken = false;
    await kubelet.prepare(pod);
    expect(first?.calls).toHaveLength(2);
    expect(kubelet.cdiDevicesFor('default', 'x')).toEqual(['a/b=x', 'a/b=x', 'a/b=x']);
  });

  it('refuses a new claim under the name of one that is still there', async () => {
    const [kubelet] = await start({});
    await kubelet.prepare(podWith('one'));
    claims = [];
    await expect(kubelet.prepare(podWith('one'))).rejects.toThrow(
      /old ResourceClaim with same name one .* still exists/,
    );
  });
});

describe('CDI devices', () => {
  it('go to the containers by request; a device without requests goes to all', async () => {
    const devices = [
      wireDevice('a', ['left'], ['x/y=a']),
      wireDevice('b', ['right'], ['x/y=b']),
      wireDevice('c', [], ['x/y=c', 'x/y=d']),
    ];
    const [kubelet] = await start({ prepare: (wire) => prepared(wire, () => devices) });
    const pod = podWith('one');
    pod.spec!.containers = [
      { name: 'whole', resources: { claims: [{ name: 'one' }] } },
      { name: 'left', resources: { claims: [{ name: 'one', request: 'left' }] } },
      { name: 'none' },
    ];
    expect(() => kubelet.cdiDevicesFor('default', 'one')).toThrow('unable to get claim info for claim one');
    await kubelet.prepare(pod);
    expect(kubelet.cdiDevicesForContainer(pod, 'whole')).toEqual(['x/y=a', 'x/y=b', 'x/y=c', 'x/y=d']);
    expect(kubelet.cdiDevicesForContainer(pod, 'left')).toEqual(['x/y=a', 'x/y=c', 'x/y=d']);
    expect(kubelet.cdiDevicesForContainer(pod, 'none')).toEqual([]);
    expect(kubelet.cdiDevicesFor('default', 'one', 'right')).toEqual(['x/y=b', 'x/y=c', 'x/y=d']);
  });

  it('pass on share ids with v1 only', async () => {
    const prepare = (wire: WireClaim[]) =>
      prepared(wire, () => [{ ...wireDevice('a', ['r'], []), shareId: 's-1' }, wireDevice('b', ['r'], [])]);
    const [kubelet] = await start(
      { prepare },
      { driver: 'old.example', supportedVersions: ['v1beta1.DRAPlugin'], prepare },
    );
    const claim = [{ namespace: 'n', name: 'c', uid: 'u' }];
    const shares = async (name: string) =>
      (await kubelet.client(name).nodePrepareResources(claim)).claims.u?.devices.map(({ shareId }) => shareId);
    expect(await shares(driver)).toEqual(['s-1', undefined]);
    expect(await shares('old.example')).toEqual([undefined, undefined]);
  });
});

describe('restart', () => {
  it('prepares again, keeps the CDI devices of before and adds the new ones', async () => {
    const [kubelet, plugin] = await start({ prepare: oneDevice });
    const pod = podWith('one');
    await kubelet.prepare(pod);
    await kubelet.restart();
    await kubelet.waitForDriver(driver);
    expect(plugin?.statuses).toHaveLength(2);
    expect(kubelet.claimInfo('default', 'one')).toMatchObject({ prepared: false });
    expect(kubelet.cdiDevicesForContainer(pod, 'main')).toEqual(['a/b=one']);
    await kubelet.prepare(pod);
    expect(plugin?.calls).toHaveLength(2);
    expect(kubelet.cdiDevicesForContainer(pod, 'main')).toEqual(['a/b=one', 'a/b=one']);
  });

  it('forgets what was answered after the last checkpoint, but not who asked', async () => {
    const [kubelet] = await start({ prepare: oneDevice }, { driver: 'b.example', prepare: () => new Error('no') });
    const pod = podWith();
    pod.spec = { ...pod.spec, containers: [], resourceClaims: [{ name: 'x', resourceClaimName: 'x' }] };
    claims.push(
      buildClaim('x', {
        requests: [{ name: 'r', devices: ['vf-0', { driver: 'b.example', device: 'd' }] }],
        pods: [pod],
      }),
    );
    await kubelet.prepare(pod).catch(() => undefined);
    expect(kubelet.cdiDevicesFor('default', 'x')).toEqual(['a/b=x']);
    await kubelet.restart();
    expect(kubelet.cdiDevicesFor('default', 'x')).toEqual([]);
    expect(kubelet.claimInfo('default', 'x')?.podUids).toEqual(new Set([pod.metadata.uid]));
  });
});

describe('unprepare', () => {
  it('waits for the last pod of a claim', async () => {
    const [kubelet, plugin] = await start({});
    const first = podWith('one');
    const second = buildPod('second', { resourceClaims: [{ name: 'one', resourceClaimName: 'one' }] });
    claims[0]!.status!.reservedFor!.push({ resource: 'pods', name: 'second', uid: second.metadata.uid });
    await kubelet.prepare(first);
    await kubelet.prepare(second);
    await kubelet.unprepare(first);
    expect(plugin?.calls.map(({ method }) => method)).toEqual(['v1.DRAPlugin/NodePrepareResources']);
    await kubelet.unprepare(second);
    await kubelet.unprepare(second);
    expect(plugin?.calls.map(({ method }) => method)).toEqual([
      'v1.DRAPlugin/NodePrepareResources',
      'v1.DRAPlugin/NodeUnprepareResources',
    ]);
    expect(kubelet.claimInfo('default', 'one')).toBeUndefined();
  });

  it('keeps the claim until the driver succeeds', async () => {
    let error = 'VF is busy';
    const unprepare = (wire: WireClaim[]) =>
      error === '' ? unprepared(wire) : { claims: Object.fromEntries(wire.map(({ uid }) => [uid, { error }])) };
    const [kubelet] = await start({ unprepare });
    const pod = podWith('one');
    await kubelet.prepare(pod);
    await expect(kubelet.unprepare(pod)).rejects.toThrow(
      'unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim one: VF is busy',
    );
    expect(kubelet.claimInfo('default', 'one')).toBeDefined();
    error = '';
    await kubelet.unprepare(pod);
    expect(kubelet.claimInfo('default', 'one')).toBeUndefined();
  });

  it('is blocked by a driver that is gone', async () => {
    const [kubelet, plugin] = await start({});
    const pod = podWith('one');
    await kubelet.prepare(pod);
    plugin?.[Symbol.dispose]();
    await kubelet.until(() => kubelet.plugins().length === 0);
    await expect(kubelet.unprepare(pod)).rejects.toThrow(`DRA driver ${driver} is not registered`);
  });

  it('happens to claims of pods that vanished', async () => {
    const [kubelet, plugin] = await start({});
    await kubelet.prepare(podWith('one'));
    await kubelet.unprepareVanished(() => true);
    expect(plugin?.calls).toHaveLength(1);
    await kubelet.unprepareVanished(() => false);
    expect(plugin?.calls[1]?.claims[0]?.name).toBe('one');
    expect(kubelet.claimInfo('default', 'one')).toBeUndefined();
  });
});
