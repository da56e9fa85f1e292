import type { KubernetesObject, V1DaemonSet, V1Deployment, V1Node, V1Pod } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ResourceClaim } from '../../../src/framework/kube/index.ts';
import { Cluster, type Stored } from '../../cluster/cluster.ts';
import type { Slice } from '../../cluster/cluster-facts.ts';
import { ContainerView } from '../../cluster/container-view.ts';
import { onNode, testClaim, testPod, testTemplate, toContainer } from '../../cluster/objects.ts';
import { readTarget } from '../../cluster/target.ts';
import { expectedNetworkData } from '../../ip-link.ts';

const target = readTarget(process.env);
const config = { interfaceName: 'net1', addresses: ['192.0.2.7/24'] };
const deploymentName = 'spread';

/** Three nodes or more, with VFs of equal names and addresses on each. */
describe('a cluster of several nodes', { timeout: 400_000 }, () => {
  let cluster: Cluster;
  let nodes: string[];
  /** Links of simulated VFs on each node while no pod has one. */
  let linksBefore: string[][];

  beforeAll(async () => {
    cluster = await Cluster.open(target);
    await cluster.until('three nodes offer devices', async () => (await offeringNodes()).length >= 3);
    nodes = await offeringNodes();
    for (const node of nodes) await cluster.create(hostPod(node));
    for (const node of nodes) await cluster.waitUntilRunning(hostPodName(node));
    linksBefore = await Promise.all(nodes.map(vfLinks));
    await cluster.create(testTemplate(cluster, 'nics', [{ name: 'vf', config }]));
  });
  afterEach(async ({ task }) => {
    if (target.keepFailed && task.result?.state === 'fail') return;
    await cluster.remove('Deployment', deploymentName);
    await cluster.until('the pods are gone', async () => (await livePods(() => true)).length === nodes.length);
    await expectAllVfsOn(nodes);
  });
  afterAll(async () => await cluster?.[Symbol.asyncDispose]());

  async function offeringNodes(): Promise<string[]> {
    const slices = (await cluster.list<Slice>('ResourceSlice')).filter(({ spec }) => spec.driver === target.driver);
    const offering = slices.filter(({ spec }) => (spec.devices ?? []).length > 0);
    return [...new Set(offering.flatMap(({ spec }) => spec.nodeName ?? []))].sort();
  }

  const hostPodName = (node: string) => `links-${node}`;

  /** A pod that sees the links of a node. */
  function hostPod(node: string): V1Pod & KubernetesObject {
    const spec = { ...testPod(cluster, hostPodName(node), {}).spec!, hostNetwork: true, ...onHost(node) };
    return { apiVersion: 'v1', kind: 'Pod', metadata: { name: hostPodName(node), namespace: cluster.namespace }, spec };
  }

  const onHost = (node: string) => ({ nodeSelector: { 'kubernetes.io/hostname': node } });

  async function vfLinks(node: string): Promise<string[]> {
    const links = JSON.parse(await cluster.read(hostPodName(node), 'main', 'ip', '-j', 'link')) as { ifname: string }[];
    return links
      .map(({ ifname }) => ifname)
      .filter((name) => /^nsim\d+v\d+$/.test(name))
      .sort();
  }

  async function expectAllVfsOn(some: string[]): Promise<void> {
    const links = () => Promise.all(some.map(vfLinks));
    await expect.poll(links).toEqual(some.map((node) => linksBefore[nodes.indexOf(node)]));
  }

  /** A Deployment of pods with a VF each, or a change of it. @param restart any text; another one replaces all pods */
  async function deploy(replicas: number, restart: string): Promise<void> {
    const labels = { app: deploymentName };
    const podClaims = [{ name: 'nic', resourceClaimTemplateName: 'nics' }];
    // Not all, as of other test pods: a cordoned node has a taint.
    const tolerations = [{ key: 'node-role.kubernetes.io/control-plane', operator: 'Exists' }];
    const spec = { ...onNode(cluster), restartPolicy: 'Always', nodeSelector: {}, tolerations };
    const containers = [toContainer(cluster, { name: 'main' }, podClaims)];
    const deployment: V1Deployment & KubernetesObject = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: deploymentName, namespace: cluster.namespace },
      spec: {
        replicas,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels, annotations: { restart } },
          spec: { ...spec, resourceClaims: podClaims, containers },
        },
      },
    };
    await cluster.apply(deployment);
  }

  async function livePods(isMeant: (pod: Stored<V1Pod>) => boolean): Promise<Stored<V1Pod>[]> {
    return (await cluster.list<V1Pod>('Pod')).filter((pod) => isMeant(pod));
  }

  /** Waits until exactly the pods that the Deployment asks for are there, and run. */
  async function settled(): Promise<Stored<V1Pod>[]> {
    let pods: Stored<V1Pod>[] = [];
    await cluster.until('the pods of the Deployment run', async () => {
      const { metadata, spec, status = {} } = (await cluster.find<V1Deployment>('Deployment', deploymentName))!;
      pods = await livePods((pod) => pod.metadata.labels?.app === deploymentName);
      const counts = [status.updatedReplicas, status.readyReplicas, status.replicas, pods.length];
      return (
        status.observedGeneration === metadata.generation && counts.every((each) => (each ?? 0) === spec?.replicas)
      );
    });
    return pods;
  }

  /** What scheduler, driver and kernel say of a pod's VF is the same. @returns pool and name of the device */
  async function agreedDevice(pod: Stored<V1Pod>, claimName: string, folder: string): Promise<string> {
    const claim = async () => await cluster.find<ResourceClaim>('ResourceClaim', claimName);
    const allocated = (await claim())?.status?.allocation?.devices?.results?.[0];
    expect(allocated?.pool).toBe(pod.spec?.nodeName);
    const container = new ContainerView(cluster, pod.metadata.name);
    const { devices } = await container.metadata(folder, 'vf');
    const link = (await container.links()).find(({ ifname }) => ifname === config.interfaceName);
    const networkData = expectedNetworkData(link);
    expect(devices).toMatchObject([{ pool: allocated?.pool, name: allocated?.device, networkData }]);
    // The status follows a moment later.
    const status = async () => (await claim())?.status?.devices;
    await expect.poll(status).toMatchObject([{ pool: allocated?.pool, device: allocated?.device, networkData }]);
    return `${allocated?.pool}/${allocated?.device}`;
  }

  async function expectAgreement(pods: Stored<V1Pod>[]): Promise<void> {
    const agreed = pods.map(async (pod) => {
      const claimName = pod.status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? '';
      return await agreedDevice(pod, claimName, 'resourceclaimtemplates/nic');
    });
    const devices = await Promise.all(agreed);
    expect(new Set(devices).size).toBe(pods.length);
    const warnings = (await cluster.events()).filter(
      ({ type, regarding }) => type === 'Warning' && regarding.kind === 'ResourceClaim',
    );
    expect(warnings).toEqual([]);
  }

  it('a Deployment is restarted, emptied and filled again: each pod has a VF of its node for itself', async () => {
    await deploy(12, 'first');
    await expectAgreement(await settled());
    await deploy(12, 'second');
    await expectAgreement(await settled());
    await deploy(0, 'second');
    await settled();
    await expectAllVfsOn(nodes);
    await deploy(20, 'second');
    await expectAgreement(await settled());
  });

  it('a node that is cordoned and emptied has its links again, and pods return to it', async () => {
    await deploy(9, 'first');
    const used = (await settled()).map(({ spec }) => spec?.nodeName ?? '');
    const emptied = used[0]!;
    const cordon = async (unschedulable: boolean) =>
      await cluster.apply<V1Node & KubernetesObject>({
        apiVersion: 'v1',
        kind: 'Node',
        metadata: { name: emptied },
        spec: { unschedulable },
      });
    await cordon(true);
    try {
      const there = await livePods(
        ({ spec, metadata }) => spec?.nodeName === emptied && metadata.labels?.app !== undefined,
      );
      await Promise.all(there.map(({ metadata }) => cluster.remove('Pod', metadata.name)));
      const pods = await settled();
      expect(pods.map(({ spec }) => spec?.nodeName)).not.toContain(emptied);
      await expectAgreement(pods);
      await expectAllVfsOn([emptied]);
    } finally {
      await cordon(false);
    }
    // The other nodes have fewer VFs than this.
    await deploy(20, 'first');
    const pods = await settled();
    expect(pods.map(({ spec }) => spec?.nodeName)).toContain(emptied);
    await expectAgreement(pods);
  });

  it.each([
    ['deleted', 1],
    ['deleted by force', 0],
  ])('a named claim goes from node to node when its pod is %s', async (_, gracePeriodSeconds) => {
    await cluster.create(testClaim(cluster, 'named', [{ name: 'vf', config }]));
    for (const [index, node] of nodes.entries()) {
      const pod = testPod(cluster, `holder-${index}`, { claims: [{ name: 'nic', resourceClaimName: 'named' }] });
      Object.assign(pod.spec!, onHost(node));
      await cluster.create(pod);
      const running = await cluster.waitUntilRunning(`holder-${index}`);
      expect(await agreedDevice(running, 'named', 'resourceclaims/named')).toMatch(new RegExp(`^${node}/`));
      await cluster.remove('Pod', `holder-${index}`, gracePeriodSeconds);
    }
    await cluster.remove('ResourceClaim', 'named');
  });

  it('all drivers are replaced one after the other while pods come and go', async () => {
    await deploy(9, 'first');
    await settled();
    await cluster.apply({
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name: 'netdra', namespace: target.driverNamespace },
      spec: { template: { metadata: { annotations: { 'netdra.dev/e2e-restart': String(Date.now()) } } } },
    } as KubernetesObject);
    const isRolledOut = async () => {
      const daemonSet = await cluster.find<V1DaemonSet>('DaemonSet', 'netdra', target.driverNamespace);
      const { metadata, status } = daemonSet!;
      const counts = [status?.updatedNumberScheduled, status?.numberAvailable, status?.currentNumberScheduled];
      return status?.observedGeneration === metadata.generation && counts.every((each) => each === nodes.length);
    };
    for (let round = 1; !(await isRolledOut()); round++) {
      await deploy(9, `round ${round}`);
      await settled();
    }
    await expectAgreement(await settled());
  });
});
