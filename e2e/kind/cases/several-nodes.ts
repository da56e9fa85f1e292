import { join } from 'node:path';
import type { KubernetesObject, V1DaemonSet, V1Deployment, V1Node, V1Pod, V1PodSpec } from '@kubernetes/client-node';
import { expect } from 'vitest';
import { run } from '../../../scripts/packages/run.ts';
import type { ResourceClaim } from '../../../src/framework/kube/index.ts';
import { Cluster, type Stored } from '../../cluster/cluster.ts';
import { ContainerView } from '../../cluster/container-view.ts';
import { onNode, testClaim, testPod, testTemplate, toContainer } from '../../cluster/objects.ts';
import type { ClusterTarget } from '../../cluster/target.ts';
import { expectTruth } from '../../cluster/vf-pods.ts';
import { repository } from '../settings.ts';
import { AddressWatch } from './address-watch.ts';

const requestWith = (address: string) => ({
  name: 'vf',
  config: { interfaceName: 'net1', addresses: [`${address}/24`] },
});
const request = requestWith('192.0.2.7');
const release = 'netdra';
const templateName = 'nics';
const deploymentName = 'spread';
const podLabels = { app: deploymentName };
const outOfServiceTaint = 'node.kubernetes.io/out-of-service';
const controlPlaneLabel = 'node-role.kubernetes.io/control-plane';

/**
 * A kind cluster of three nodes or more with VFs of equal names and addresses on each, and in it a Deployment of pods
 * with a VF each. The suite's container engine reaches the nodes.
 */
export class SeveralNodes implements AsyncDisposable {
  readonly cluster: Cluster;
  /** All of them offer devices. The first one has the control plane. */
  readonly nodes: string[];
  readonly #engine: string;
  /** What the driver has on each node while no pod has a VF. */
  readonly #before: Record<string, string[]>;

  private constructor(cluster: Cluster, nodes: string[], engine: string) {
    this.cluster = cluster;
    this.nodes = nodes;
    this.#engine = engine;
    this.#before = Object.fromEntries(nodes.map((node) => [node, this.#stateOf(node)]));
  }

  static async open(target: ClusterTarget): Promise<SeveralNodes> {
    const cluster = await Cluster.open(target);
    const isLast = ({ metadata }: V1Node) => (metadata?.labels?.[controlPlaneLabel] === undefined ? 1 : 0);
    const nodes = (await cluster.list<V1Node>('Node')).sort((a, b) => isLast(a) - isLast(b));
    const names = nodes.map(({ metadata }) => metadata.name);
    await cluster.until('all nodes offer devices', async () => {
      const offered = await Promise.all(names.map((name) => cluster.devices(name)));
      return offered.every(({ length }) => length > 0);
    });
    await cluster.create(testTemplate(cluster, templateName, [request]));
    return new SeveralNodes(cluster, names, target.engine!);
  }

  /** Names of the links of VFs on a node, and paths of the driver's files for claims. */
  #stateOf(node: string): string[] {
    const { paths, driver } = this.cluster.target;
    const folders = `${paths.cdi} ${paths.kubeletPlugins}/${driver}/dra-device-metadata`;
    const script = `ls /sys/class/net | grep -E '^nsim[0-9]+v[0-9]+$'; for each in ${folders}; do [ ! -d $each ] || find $each -mindepth 1; done`;
    return this.onNode(node, 'sh', '-c', script).split('\n').sort();
  }

  /** Runs a program on a node. @returns its output */
  onNode(node: string, ...command: string[]): string {
    return run(this.#engine, ['exec', node, ...command]);
  }

  /**
   * Ends a node with all its processes, as a power cut does, and lets Kubernetes know as an operator does who knows that the node is
   * off. Source: Kubernetes, "Non-graceful node shutdown".
   */
  kill(node: string): void {
    run(this.#engine, ['kill', node]);
    this.kubectl('taint', 'node', node, `${outOfServiceTaint}=nodeshutdown:NoExecute`);
  }

  /** Lets pods run again on a node that was killed. */
  returnToService(node: string): void {
    this.kubectl('taint', 'node', node, `${outOfServiceTaint}-`);
  }

  /** Follows the addresses of `net1` in the pods of all nodes, until it is disposed. */
  watchAddresses(): AddressWatch {
    return new AddressWatch(this.#engine, this.nodes);
  }

  /** Starts a node that was killed, and waits until its kubelet reports that it is ready. */
  async start(node: string): Promise<void> {
    const startedAtMs = Date.now();
    run(this.#engine, ['start', node]);
    await this.cluster.until(`${node} is ready`, async () => {
      const conditions = (await this.cluster.find<V1Node>('Node', node))?.status?.conditions;
      const { status, lastHeartbeatTime = 0 } = conditions?.find(({ type }) => type === 'Ready') ?? {};
      // The API server has the last state before the end for most of a minute.
      return status === 'True' && new Date(lastHeartbeatTime).getTime() > startedAtMs;
    });
  }

  kubectl(...args: string[]): string {
    return this.onNode(this.nodes[0]!, 'kubectl', '--kubeconfig', '/etc/kubernetes/admin.conf', ...args);
  }

  /** Changes values of the installed chart, or goes back to those before; {@link isRolledOut} tells when all nodes have them. */
  helm(...command: ['upgrade', ...values: string[]] | ['rollback']): void {
    const { kubeconfig, driverNamespace } = this.cluster.target;
    const [verb, ...values] = command;
    const chart = verb === 'upgrade' ? [join(repository, 'deploy/helm/netdra'), '--reuse-values'] : [];
    const set = values.flatMap((value) => ['--set', value]);
    run('helm', [verb, release, ...chart, ...set, '--kubeconfig', kubeconfig, '--namespace', driverNamespace]);
  }

  async isRolledOut(): Promise<boolean> {
    const daemonSet = await this.cluster.find<V1DaemonSet>('DaemonSet', 'netdra', this.cluster.target.driverNamespace);
    const { metadata, status } = daemonSet!;
    const counts = [status?.updatedNumberScheduled, status?.numberAvailable, status?.currentNumberScheduled];
    return status?.observedGeneration === metadata.generation && counts.every((each) => each === this.nodes.length);
  }

  /** Names of the nodes on which two instances of the driver run. @param forSeconds the newer one for at least so long */
  surging(forSeconds = 0): string[] {
    const format = '{range .items[?(@.status.phase=="Running")]}{.spec.nodeName} {.status.startTime}{"\\n"}{end}';
    const selected = [
      '--selector',
      'app.kubernetes.io/name=netdra',
      '--namespace',
      this.cluster.target.driverNamespace,
    ];
    const lines = this.kubectl('get', 'pods', ...selected, '--output', `jsonpath=${format}`)
      .trim()
      .split('\n');
    const instances = lines.map((line) => line.split(' ') as [node: string, startTime: string]);
    return this.nodes.filter((node) => {
      const started = instances.flatMap(([of, startTime]) => (of === node ? [Date.parse(startTime)] : []));
      return started.length === 2 && Date.now() - Math.max(...started) >= forSeconds * 1_000;
    });
  }

  /** Ends the process that holds a pod's namespaces, after which the kubelet makes another sandbox for the pod. */
  killSandbox({ metadata, spec }: Stored<V1Pod>): void {
    const node = spec?.nodeName ?? '';
    const filter = `labels."io.kubernetes.pod.uid"==${metadata.uid},labels."io.cri-containerd.kind"==sandbox`;
    const id = this.onNode(node, 'ctr', '--namespace=k8s.io', 'containers', 'list', '--quiet', filter).trim();
    this.onNode(node, 'ctr', '--namespace=k8s.io', 'tasks', 'kill', '--signal=SIGKILL', id);
  }

  /** Connects the first simulated PFs of two nodes by a cable, until the end of one of the nodes. */
  connect(one: string, other: string): void {
    const pidOf = (node: string) => run(this.#engine, ['inspect', '--format={{.State.Pid}}', node]).trim();
    const end = (node: string) => ['name', 'cable', 'netns', pidOf(node)];
    run('ip', ['link', 'add', ...end(one), 'type', 'veth', 'peer', ...end(other)]);
    for (const node of [one, other]) this.onNode(node, 'ip', 'link', 'set', 'cable', 'up', 'master', 'nsim0');
  }

  disconnect(node: string): void {
    this.onNode(node, 'ip', 'link', 'delete', 'cable');
  }

  /** Evicts the pods of an app from a node that gets no new ones until {@link uncordon}. @param app default: the Deployment */
  drain(node: string, app = deploymentName): void {
    const selected = [`--pod-selector=app=${app}`, '--grace-period=1', '--timeout=120s'];
    this.kubectl('drain', node, ...selected);
  }

  uncordon(node: string): void {
    this.kubectl('uncordon', node);
  }

  /** Creates the Deployment or changes it. @param restart any text; another one replaces all pods */
  async deploy(replicas: number, restart: string): Promise<void> {
    const { cluster } = this;
    const deployment: V1Deployment & KubernetesObject = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: deploymentName, namespace: cluster.namespace },
      spec: {
        replicas,
        // All at once: as many pods again fit on three nodes.
        strategy: { rollingUpdate: { maxSurge: '100%' } },
        selector: { matchLabels: podLabels },
        template: {
          metadata: { labels: podLabels, annotations: { restart } },
          spec: podSpecOnAnyNode(cluster, 'nic', templateName),
        },
      },
    };
    await cluster.apply(deployment);
  }

  /** Pods of the Deployment, with those that are being deleted. */
  async pods(): Promise<Stored<V1Pod>[]> {
    return (await this.cluster.list<V1Pod>('Pod')).filter(({ metadata }) => metadata.labels?.app === deploymentName);
  }

  /** Waits until exactly the pods that the Deployment asks for are there, and run. */
  async settled(): Promise<Stored<V1Pod>[]> {
    let pods: Stored<V1Pod>[] = [];
    const isSettled = async () => {
      const { metadata, spec, status = {} } = (await this.cluster.find<V1Deployment>('Deployment', deploymentName))!;
      pods = await this.pods();
      const counts = [status.updatedReplicas, status.readyReplicas, status.replicas, pods.length];
      return (
        status.observedGeneration === metadata.generation && counts.every((each) => (each ?? 0) === spec?.replicas)
      );
    };
    const describe = () =>
      pods.map(({ metadata, spec, status }) => `\n${metadata.name} ${spec?.nodeName} ${status?.phase}`);
    await this.cluster.until('the pods of the Deployment run', isSettled, async () => describe().join(''));
    return pods;
  }

  /** @param address of its VF in a pod, by default one that no pod of the Deployment has */
  async createNamedClaim(name: string, address = '192.0.2.8'): Promise<void> {
    await this.cluster.create(testClaim(this.cluster, name, [requestWith(address)]));
  }

  /** Creates a pod on a node with a named claim, and waits until it runs with the VF of the claim. */
  async hold(claim: string, node: string): Promise<string> {
    const { cluster } = this;
    const name = `holder-of-${claim}-${node}`;
    const pod = testPod(cluster, name, { claims: [{ name: 'nic', resourceClaimName: claim }] });
    Object.assign(pod.spec!, { nodeSelector: { 'kubernetes.io/hostname': node } });
    await cluster.create(pod);
    await this.#expectAgreementOf(await cluster.waitUntilRunning(name), claim, `resourceclaims/${claim}`);
    return name;
  }

  /** The container of a pod with a named claim, the texts of its metadata files, and the status of the claim. */
  async stateOf(pod: string, claim: string) {
    const view = new ContainerView(this.cluster, pod);
    const { status } = (await this.cluster.find<V1Pod>('Pod', pod))!;
    const object = await this.cluster.find<ResourceClaim>('ResourceClaim', claim);
    const paths = [view.metadataPath(`resourceclaims/${claim}`, request.name), view.kepPath(claim, request.name)];
    const files = await view.read('cat', ...paths);
    return [status?.containerStatuses, object?.status?.devices, files];
  }

  /** What scheduler, driver and kernel say of a pod's VF is the same. */
  async #expectAgreementOf(pod: Stored<V1Pod>, claimName: string, folder: string): Promise<void> {
    const claim = async () => await this.cluster.find<ResourceClaim>('ResourceClaim', claimName);
    const allocated = (await claim())?.status?.allocation?.devices?.results?.[0];
    expect(allocated?.pool).toBe(pod.spec?.nodeName);
    const { devices } = await expectTruth(new ContainerView(this.cluster, pod.metadata.name), folder);
    expect(devices).toMatchObject([{ pool: allocated?.pool, name: allocated?.device }]);
    // The status follows a moment later.
    const status = async () => (await claim())?.status?.devices;
    await expect
      .poll(status)
      .toMatchObject([{ pool: allocated?.pool, device: allocated?.device, networkData: devices[0]?.networkData }]);
  }

  /** For each pod of the Deployment all accounts of its VF agree; each device is allocated once, and no claim has another warning. */
  async expectAgreement(pods: Stored<V1Pod>[]): Promise<void> {
    const agreed = pods.map(async (pod) => {
      const claimName = pod.status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? '';
      await this.#expectAgreementOf(pod, claimName, 'resourceclaimtemplates/nic');
    });
    await Promise.all(agreed);
    const claims = await this.cluster.list<ResourceClaim>('ResourceClaim');
    const devices = claims
      .flatMap(({ status }) => status?.allocation?.devices?.results ?? [])
      .map(({ pool, device }) => `${pool}/${device}`);
    expect(devices).toEqual([...new Set(devices)]);
    const warnings = (await this.cluster.events())
      .filter(({ type, regarding }) => type === 'Warning' && regarding.kind === 'ResourceClaim')
      // All pods of the template have the one address that it names, which the driver reports.
      .filter(({ reason }) => reason !== 'DuplicateAddress' && reason !== 'PortShared')
      .map(({ reason, regarding, note }) => `${regarding.name}: ${reason}: ${note}`);
    expect(warnings).toEqual([]);
  }

  /**
   * Waits until the VFs of nodes are back, and no file of a claim is left there. A kubelet that was down when a pod was
   * deleted unprepares its claims a minute after its start.
   */
  async expectRestored(...nodes: string[]): Promise<void> {
    for (const node of nodes) {
      await expect.poll(() => this.#stateOf(node), { timeout: 120_000, interval: 500 }).toEqual(this.#before[node]);
    }
  }

  /** Removes what a test has left. */
  async clear(): Promise<void> {
    await this.cluster.removeAll([templateName]);
    await this.expectRestored(...this.nodes);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster[Symbol.asyncDispose]();
  }
}

/** The spec of a pod with a claim from a template, on any node that is neither cordoned nor out of service. */
export function podSpecOnAnyNode(cluster: Cluster, claim: string, resourceClaimTemplateName: string): V1PodSpec {
  const resourceClaims = [{ name: claim, resourceClaimTemplateName }];
  const containers = [toContainer(cluster, { name: 'main' }, resourceClaims)];
  const tolerations = [{ key: controlPlaneLabel, operator: 'Exists' }];
  return { ...onNode(cluster), restartPolicy: 'Always', nodeSelector: {}, tolerations, resourceClaims, containers };
}
