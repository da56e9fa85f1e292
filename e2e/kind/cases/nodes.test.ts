import type { KubernetesObject, V1Pod } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { NetworkAddress } from '../../../src/driver/addresses/objects.ts';
import type { KubeRequest, ResourceClaim } from '../../../src/framework/kube/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import { readTarget } from '../../cluster/target.ts';
import { createPool, StatefulPods } from './pool-pods.ts';
import { SeveralNodes } from './several-nodes.ts';

const target = readTarget(process.env);
const slicesPath = '/apis/resource.k8s.io/v1/resourceslices';

describe('a cluster of several nodes', { timeout: 400_000 }, () => {
  let kind: SeveralNodes;
  beforeAll(async () => {
    kind = await SeveralNodes.open(target);
  });
  afterEach(async ({ task }) => {
    if (!target.keepFailed || task.result?.state !== 'fail') await kind.clear();
  });
  afterAll(async () => await kind?.[Symbol.asyncDispose]());

  it('each pod of a Deployment gets a VF even if kubelet and runtime are killed during scaling', async () => {
    const [first = '', , second = ''] = kind.nodes;
    await kind.deploy(12, 'first');
    await kind.expectAgreement(await kind.settled());
    await kind.deploy(12, 'second');
    await kind.expectAgreement(await kind.settled());
    await kind.deploy(0, 'second');
    await kind.settled();
    await kind.expectRestored(...kind.nodes);
    await kind.deploy(20, 'second');
    const isUnderWay = async () => (await kind.pods()).some(({ status }) => status?.phase === 'Running');
    await kind.cluster.until('the first pod runs', isUnderWay);
    // Not on the node that is killed later: containerd 2.1 does not start again where a kubelet was killed while it made a
    // sandbox (containerd issue 13609).
    kind.onNode(first, 'systemctl', 'kill', '--signal=SIGKILL', 'kubelet');
    kind.onNode(second, 'systemctl', 'restart', 'containerd');
    await kind.expectAgreement(await kind.settled());
  });

  it('pods of a killed or drained node move to other nodes, and later back, even with a named ResourceClaim', async () => {
    const { cluster } = kind;
    const [, killed = '', drained = ''] = kind.nodes;
    // As many as the last node has room for.
    await kind.deploy(8, 'first');
    await kind.settled();
    await kind.createNamedClaim('named');
    const holder = await kind.hold('named', killed);
    kind.kill(killed);
    const lost = (await kind.pods())
      .filter(({ spec }) => spec?.nodeName === killed)
      .map(({ metadata }) => metadata.name);
    expect(lost).not.toEqual([]);
    await Promise.all([holder, ...lost].map((name) => cluster.remove('Pod', name, 0)));
    const next = await kind.hold('named', drained);
    await kind.expectAgreement(await kind.settled());
    await cluster.removeWithClaims([next, 'named']);
    await kind.start(killed);
    // Meanwhile its kubelet finds out that its pods are deleted.
    kind.drain(drained);
    try {
      const pods = await kind.settled();
      expect(new Set(pods.map(({ spec }) => spec?.nodeName))).toEqual(new Set(kind.nodes.slice(0, 1)));
      await kind.expectAgreement(pods);
      await kind.expectRestored(killed, drained);
    } finally {
      kind.uncordon(drained);
    }
    kind.returnToService(killed);
    // Two nodes have fewer VFs than this.
    await kind.deploy(20, 'first');
    await kind.expectAgreement(await kind.settled());
  });

  it('a StatefulSet keeps its pool addresses through restart, drain and loss of a node, and frees them when it is deleted', {
    timeout: 900_000,
  }, async ({ onTestFinished }) => {
    const { cluster } = kind;
    const [, drained = '', killed = ''] = kind.nodes;
    await using watch = kind.watchAddresses();
    const pool = await createPool(cluster);
    onTestFinished(() => pool.remove());
    const store = await StatefulPods.create(kind, pool, 'store');
    let pods = await store.settled();
    const allNodes = new Set(kind.nodes);
    expect(nodesOf(pods)).toEqual(allNodes);
    const addresses = await store.addresses();
    const ips = Object.values(addresses).flatMap((each) => each.ips);
    expect(new Set(ips).size).toBe(6);
    /** Does something to the pods, waits for those that are meant, and expects them to have the addresses of before. */
    const expectKept = async (what: string, act: () => void | Promise<void>, isMeant: (pod: V1Pod) => boolean) => {
      const startedAtMs = Date.now();
      await act();
      pods = await store.settled(isMeant);
      const seconds = (Date.now() - startedAtMs) / 1_000;
      expect(await store.addresses()).toEqual(addresses);
      expect(store.shown()).toEqual(store.expectedShown(pods, addresses));
      const places = pods.map(({ metadata, spec }) => {
        const { ips = [], hardwareAddress = '' } = addresses[metadata.name] ?? {};
        return `${metadata.name} on ${spec?.nodeName}: ${[...ips, hardwareAddress].join(' ')}`;
      });
      console.log(`${what}, after ${seconds.toFixed(1)} s:\n${places.sort().join('\n')}`);
    };
    const restart = async () => {
      const former = new Set(pods.map(({ metadata }) => metadata.uid));
      const isNew = ({ metadata }: V1Pod) => !former.has(metadata?.uid ?? '');
      await expectKept('rollout restart', () => store.restart(), isNew);
      expect(nodesOf(pods)).toEqual(allNodes);
    };
    const isNotOn = (node: string) => (pod: V1Pod) => pod.spec?.nodeName !== node;

    await restart();
    try {
      await expectKept(`drain of ${drained}`, () => kind.drain(drained, 'store'), isNotOn(drained));
    } finally {
      kind.uncordon(drained);
    }
    await expectKept(`loss of ${killed}`, () => kind.kill(killed), isNotOn(killed));
    const bringBack = async () => {
      await kind.start(killed);
      kind.returnToService(killed);
      await kind.expectRestored(killed);
    };
    await expectKept(`return of ${killed}`, bringBack, isNotOn(killed));
    await restart();

    await cluster.remove('StatefulSet', 'store');
    await expect.poll(() => cluster.list<NetworkAddress>('NetworkAddress'), { timeout: 60_000 }).toEqual([]);
    const next = await StatefulPods.create(kind, pool, 'next');
    const others = await next.settled();
    const given = await next.addresses();
    expect(
      Object.values(given)
        .flatMap((each) => each.ips)
        .sort(),
    ).toEqual(ips.sort());
    expect(next.shown()).toEqual(next.expectedShown(others, given));
    expect(watch.overlaps()).toEqual([]);
    // At least four pods had each address in turn. A watch that saw fewer of them could have missed an overlap.
    for (const ip of ips) await expect.poll(() => watch.holdersOf(ip.split('/')[0] ?? '')).toBeGreaterThanOrEqual(4);
  });

  it.each([
    ['deleted', 1],
    ['force-deleted', 0],
  ])('a named claim moves to another node when its pod is %s', async (_, gracePeriodSeconds) => {
    await kind.createNamedClaim('named');
    for (const node of kind.nodes) {
      await kind.cluster.remove('Pod', await kind.hold('named', node), gracePeriodSeconds);
    }
    await kind.cluster.remove('ResourceClaim', 'named');
  });

  it('the driver token of one node can change neither slices nor claims of another node', async () => {
    const { cluster } = kind;
    const [own = '', other = ''] = kind.nodes;
    await kind.createNamedClaim('named');
    const holder = await kind.hold('named', other);
    const driver = await cluster.driverClient(own);
    const answer = async (request: KubeRequest) => await driver.request(request).then(() => 'accepted', explain);
    const [published] = await cluster.slices(other);
    const path = `${slicesPath}/${published?.metadata?.name}`;
    const refused = `netdra on node ${own} may not touch a ResourceSlice of node '${other}'`;
    expect(await answer({ method: 'PUT', path, body: published! })).toContain(refused);
    expect(await answer({ method: 'DELETE', path })).toContain(refused);
    const forge = (nodeName: string) =>
      answer({
        method: 'POST',
        path: slicesPath,
        body: {
          ...published!,
          metadata: { name: 'forged' },
          spec: { ...published!.spec, nodeName },
        } as KubernetesObject,
      });
    expect(await forge(other)).toContain(refused);
    expect(await forge(own)).toContain(
      `a ResourceSlice of ${target.driver} for node '${own}' may not have pool '${other}'`,
    );
    const claim = (await cluster.find<ResourceClaim>('ResourceClaim', 'named'))!;
    const status = `/apis/resource.k8s.io/v1/namespaces/${cluster.namespace}/resourceclaims/named/status`;
    const value = { ...claim.status?.devices?.[0], networkData: { interfaceName: 'forged' } };
    const patch = [{ op: 'replace' as const, path: '/status/devices/0', value }];
    // The API server itself refuses it, before it evaluates the chart's policy. Source: Kubernetes 1.36, `resourceclaims/driver`.
    expect(
      await answer({ method: 'PATCH', path: status, contentType: 'application/json-patch+json', body: patch }),
    ).toContain('cannot arbitrary-node:patch resource "resourceclaims/driver"');
    expect(await cluster.slices(other)).toEqual([published]);
    expect((await cluster.find<ResourceClaim>('ResourceClaim', 'named'))?.status).toEqual(claim.status);
    await cluster.removeWithClaims([holder, 'named']);
  });

  it('changing chart values and changing them back does not disturb the traffic of a running pod', async () => {
    await kind.createNamedClaim('named');
    const holder = await kind.hold('named', kind.nodes.at(-1)!);
    const before = await kind.stateOf(holder, 'named');
    await kind.deploy(9, 'first');
    await kind.settled();
    const rollOut = async (direction: string) => {
      for (let round = 1; !(await kind.isRolledOut()); round++) {
        await kind.deploy(9, `${direction} ${round}`);
        await kind.settled();
        // docs/troubleshooting.md, "A rolling update stands still": a change of the DaemonSet makes its controller look again.
        const nudge = ['annotate', 'daemonset/netdra', `netdra.dev/nudged=${round}`, '--overwrite'];
        if (round > 6) console.warn(kind.kubectl(...nudge, '--namespace', target.driverNamespace));
      }
      await kind.expectAgreement(await kind.settled());
      // The kubelet does not know the health of devices between the stream of one driver and that of the next.
      await expect.poll(() => kind.stateOf(holder, 'named'), { timeout: 60_000, interval: 1_000 }).toEqual(before);
    };
    // More VFs, one layout less, and containers that fail where they waited.
    const values = ['simulate=10', 'metadataLayouts={v1}', 'startGate=file'];
    kind.helm('upgrade', ...values.map((value) => `kubeletPlugin.${value}`));
    await rollOut('there');
    kind.helm('rollback');
    await rollOut('back');
    const [pod] = await kind.pods();
    const container = async () =>
      (await kind.cluster.find<V1Pod>('Pod', pod!.metadata.name))?.status?.containerStatuses?.[0];
    const killed = (await container())?.containerID;
    kind.killSandbox(pod!);
    // The kubelet counts a restart before it has ended the container of the killed sandbox.
    const next = async () => {
      const { containerID, state } = (await container()) ?? {};
      return state?.running !== undefined && containerID !== killed;
    };
    await expect.poll(next, { timeout: 60_000 }).toBe(true);
    await kind.expectAgreement(await kind.settled());
    await kind.cluster.removeWithClaims([holder, 'named']);
  });

  it('pods start, stop and keep their VFs while an upgrade runs two driver instances on every node', async () => {
    const names = kind.nodes.map((_, index) => `kept-${index}`);
    const holders: [pod: string, claim: string][] = [];
    for (const [index, claim] of names.entries()) {
      await kind.createNamedClaim(claim, `192.0.2.3${index}`);
      holders.push([await kind.hold(claim, kind.nodes[index]!), claim]);
    }
    const states = () => Promise.all(holders.map(([pod, claim]) => kind.stateOf(pod, claim)));
    const before = await states();
    await kind.deploy(9, 'first');
    await kind.settled();
    const set = (...values: string[]) => kind.helm('upgrade', ...values.map((value) => `kubeletPlugin.${value}`));
    // The old instances stay, since the new ones are not available within an hour.
    const maxSurge = 'updateStrategy.rollingUpdate.maxSurge';
    set(`${maxSurge}=100%`, 'minReadySeconds=3600', 'podAnnotations.surge=yes');
    await kind.cluster.until('all nodes surge', async () => kind.surging().length === kind.nodes.length);
    for (const round of ['surging', 'still surging']) {
      await kind.deploy(9, round);
      await kind.expectAgreement(await kind.settled());
    }
    expect(kind.surging()).toEqual(kind.nodes);
    expect(await states()).toEqual(before);
    set('minReadySeconds=0');
    await kind.deploy(9, 'ending');
    await kind.cluster.until(
      'one instance is left on each node',
      async () => (await kind.isRolledOut()) && kind.surging().length === 0,
    );
    await kind.expectAgreement(await kind.settled());
    // The kubelet does not know the health of devices between the stream of one driver and that of the next.
    await expect.poll(states, { timeout: 60_000, interval: 1_000 }).toEqual(before);
    set(`${maxSurge}=10%`, 'minReadySeconds=2');
    await kind.cluster.removeWithClaims([...holders.flat()]);
  });

  it('an upgrade to a version that cannot connect stops at the first node and is rolled back', async () => {
    kind.helm('upgrade', 'kubeletPlugin.nriDirectoryPath=/run/nowhere');
    // Longer than minReadySeconds after its first probe.
    await kind.cluster.until('a new instance has run for 40 s', async () => kind.surging(40).length > 0);
    expect(kind.surging()).toHaveLength(1);
    await kind.deploy(9, 'first');
    await kind.expectAgreement(await kind.settled());
    kind.helm('rollback');
    await kind.cluster.until(
      'one instance is left on each node',
      async () => (await kind.isRolledOut()) && kind.surging().length === 0,
    );
    await kind.deploy(9, 'second');
    await kind.expectAgreement(await kind.settled());
  });

  it('VFs of two nodes reach each other where their PFs are connected', async () => {
    const [one = '', other = ''] = kind.nodes;
    kind.connect(one, other);
    const places = [
      ['first', one, '192.0.2.21'],
      ['second', other, '192.0.2.22'],
    ] as const;
    const holders: string[] = [];
    for (const [claim, node, address] of places) {
      await kind.createNamedClaim(claim, address);
      holders.push(await kind.hold(claim, node));
    }
    const ping = ['ping', '-c', '1', '-W', '10', '192.0.2.22'];
    expect(await kind.cluster.read(holders[0]!, 'main', ...ping)).toContain(' 0% packet loss');
    kind.disconnect(one);
    const cut = await kind.cluster.exec(holders[0]!, 'main', 'ping', '-c', '1', '-W', '1', '192.0.2.22');
    expect(cut.stdout).toContain('100% packet loss');
    await kind.cluster.removeWithClaims([...holders, ...places.map(([claim]) => claim)]);
  });
});

function nodesOf(pods: readonly V1Pod[]): Set<string | undefined> {
  return new Set(pods.map(({ spec }) => spec?.nodeName));
}
