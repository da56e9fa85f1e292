import { randomBytes } from 'node:crypto';
import {
  CoreV1Api,
  KubeConfig,
  type KubernetesObject,
  type V1Node,
  type V1NodeStatus,
  type V1Pod,
} from '@kubernetes/client-node';
import { type ExecResult, execInPod } from '../../src/cli/cluster/pod-exec.ts';
import { isKubeError, KubeClient, type KubeList } from '../../src/framework/kube/index.ts';
import { loadKubeConfig } from '../../src/framework/kube/kube-config.ts';
import type { Device } from '../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { poll } from '../../src/lib/poll.ts';
import {
  ClusterError,
  type ClusterNode,
  checkVersion,
  defaultTimeoutMs,
  findNode,
  listSlices,
  pollMs,
  type Slice,
} from './cluster-facts.ts';
import { readText } from './read-text.ts';
import type { ClusterTarget } from './target.ts';

/** API paths of the kinds. */
const places = {
  Pod: ['/api/v1', 'pods'],
  ReplicaSet: ['/apis/apps/v1', 'replicasets'],
  StatefulSet: ['/apis/apps/v1', 'statefulsets'],
  ServiceAccount: ['/api/v1', 'serviceaccounts'],
  Event: ['/apis/events.k8s.io/v1', 'events'],
  ResourceClaim: ['/apis/resource.k8s.io/v1', 'resourceclaims'],
  ResourceClaimTemplate: ['/apis/resource.k8s.io/v1', 'resourceclaimtemplates'],
  DeviceClass: ['/apis/resource.k8s.io/v1', 'deviceclasses'],
  DeviceTaintRule: ['/apis/resource.k8s.io/v1', 'devicetaintrules'],
  ResourceSlice: ['/apis/resource.k8s.io/v1', 'resourceslices'],
  Namespace: ['/api/v1', 'namespaces'],
  Job: ['/apis/batch/v1', 'jobs'],
  Deployment: ['/apis/apps/v1', 'deployments'],
  Node: ['/api/v1', 'nodes'],
  DaemonSet: ['/apis/apps/v1', 'daemonsets'],
  ClusterRole: ['/apis/rbac.authorization.k8s.io/v1', 'clusterroles'],
  ClusterRoleBinding: ['/apis/rbac.authorization.k8s.io/v1', 'clusterrolebindings'],
  NetworkAddress: ['/apis/netdra.dev/v1alpha1', 'networkaddresses'],
  NetworkAddressLease: ['/apis/netdra.dev/v1alpha1', 'networkaddressleases'],
  NetworkAddressPool: ['/apis/netdra.dev/v1alpha1', 'networkaddresspools'],
  NetworkDevicePolicy: ['/apis/netdra.dev/v1alpha1', 'networkdevicepolicies'],
  RuntimeClass: ['/apis/node.k8s.io/v1', 'runtimeclasses'],
} as const;
export type Kind = keyof typeof places;
/** Those that create others come first. */
const removedInTurn: Kind[] = [
  'Deployment',
  'StatefulSet',
  'ReplicaSet',
  'Pod',
  'ResourceClaim',
  'ResourceClaimTemplate',
];
const clusterScoped: Kind[] = [
  'ClusterRole',
  'ClusterRoleBinding',
  'DeviceClass',
  'DeviceTaintRule',
  'Namespace',
  'NetworkAddressLease',
  'NetworkAddressPool',
  'NetworkDevicePolicy',
  'Node',
  'ResourceSlice',
  'RuntimeClass',
];

export type Stored<T> = T & { metadata: { name: string; uid: string } };

export interface EventText {
  type: string;
  reason: string;
  note: string;
  regarding: { kind: string; name: string };
}

const driverSelector = 'app.kubernetes.io/name=netdra';

/**
 * A cluster with the driver installed, accessed through its API: the tests' actions, in a namespace of their own.
 * All pods are on one node, the first that has devices.
 */
export class Cluster implements AsyncDisposable {
  readonly target: ClusterTarget;
  readonly namespace: string;
  readonly node: ClusterNode;
  /** Whether objects were created or changed since the last {@link removeAll}; a check does neither. */
  hasCreated = false;
  readonly #config: KubeConfig;
  readonly #client: KubeClient;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    target: ClusterTarget,
    parts: { namespace: string; node: ClusterNode; config: KubeConfig; client: KubeClient },
    stack: AsyncDisposableStack,
  ) {
    this.target = target;
    this.namespace = parts.namespace;
    this.node = parts.node;
    this.#config = parts.config;
    this.#client = parts.client;
    this.#stack = stack;
  }

  /**
   * Waits for the driver to offer devices and creates a namespace.
   * @throws ClusterError `too-old`, `no-devices`; KubeError; NetdraError of the kubeconfig
   */
  static async open(target: ClusterTarget): Promise<Cluster> {
    await using stack = new AsyncDisposableStack();
    const config = loadKubeConfig(target.kubeconfig);
    const client = stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra-e2e' }));
    await checkVersion(client, target.oldestKubernetes);
    const node = await findNode(client, target.driver, target.timeoutMs ?? defaultTimeoutMs);
    const namespace = `netdra-e2e-${randomBytes(3).toString('hex')}`;
    const parts = { namespace, node, config, client };
    const cluster = new Cluster(target, parts, stack.move());
    // One of the pods mounts folders of the node, and one of the claims observes allocated devices.
    const labels = {
      'pod-security.kubernetes.io/enforce': 'privileged',
      'resource.kubernetes.io/admin-access': 'true',
    };
    await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels } });
    try {
      // Pods are refused before the account exists, which a controller creates.
      const hasAccount = async () => (await cluster.find('ServiceAccount', 'default')) !== undefined;
      await cluster.until(`namespace ${namespace} has its service account`, hasAccount);
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** @throws KubeError */
  async create<T extends KubernetesObject>(object: T): Promise<Stored<T>> {
    this.hasCreated = true;
    const path = this.#path(object.kind as Kind);
    return await this.#client.request<Stored<T>>({ method: 'POST', path, body: object });
  }

  /** @param namespace default: that of the tests @returns `undefined` if it does not exist */
  async find<T>(kind: Kind, name: string, namespace?: string): Promise<Stored<T> | undefined> {
    try {
      return await this.#client.request<Stored<T>>({ method: 'GET', path: `${this.#path(kind, namespace)}/${name}` });
    } catch (error) {
      if (isKubeError(error) && error.httpStatus === 404) return undefined;
      throw error;
    }
  }

  /** Current status of the tests' node. */
  async nodeStatus(): Promise<V1NodeStatus> {
    const path = `/api/v1/nodes/${this.node.name}`;
    return (await this.#client.request<V1Node>({ method: 'GET', path })).status ?? {};
  }

  /** Objects in the namespace. */
  async list<T>(kind: Kind): Promise<Stored<T>[]> {
    return await this.#list<Stored<T>>(this.#path(kind));
  }

  /**
   * Deletes an object, if it exists, and waits until it is gone, or another one has its name.
   * @param gracePeriodSeconds of a pod; with 0 it is gone at once, even if parts of it are still on the node
   * @throws ClusterError `not-in-time`
   */
  async remove(kind: Kind, name: string, gracePeriodSeconds = 1): Promise<void> {
    const uidOf = async () => (await this.find<object>(kind, name))?.metadata.uid;
    const uid = await uidOf();
    await this.#delete(`${this.#path(kind)}/${name}`, kind === 'Pod' ? { gracePeriodSeconds } : {});
    await this.until(`${kind} ${name} is gone`, async () => uid === undefined || (await uidOf()) !== uid);
  }

  /** Removes pods, and then the claims of the same names. @param gracePeriodSeconds see `remove` */
  async removeWithClaims(names: readonly string[], gracePeriodSeconds?: number): Promise<void> {
    await Promise.all(names.map((name) => this.remove('Pod', name, gracePeriodSeconds)));
    await Promise.all(names.map((name) => this.remove('ResourceClaim', name)));
  }

  /**
   * The feature gates that the API server has switched on.
   * Source: Kubernetes metrics reference, `kubernetes_feature_enabled`.
   */
  async features(): Promise<Set<string>> {
    const text = await readText(this.#config, '/metrics');
    return new Set(
      Array.from(text.matchAll(/^kubernetes_feature_enabled\{name="(\w+)".*\} 1$/gm), ([, name]) => name!),
    );
  }

  /** 37 for Kubernetes 1.37. */
  async minorVersion(): Promise<number> {
    const { minor } = JSON.parse(await readText(this.#config, '/version')) as { minor: string };
    return Number.parseInt(minor, 10);
  }

  /**
   * Has the API server check an object as if it were applied, without storing it.
   * @returns the object as the server would store it
   * @throws KubeError with the server's reason
   */
  async check<T extends KubernetesObject>(object: T): Promise<T> {
    return await this.apply(object, { dryRun: 'All' });
  }

  /** Creates an object, or sets the fields that are given. @throws KubeError */
  async apply<T extends KubernetesObject>(object: T, options: Record<string, string> = {}): Promise<T> {
    this.hasCreated ||= options.dryRun === undefined;
    const path = `${this.#path(object.kind as Kind, object.metadata?.namespace)}/${object.metadata?.name}`;
    const query = { ...options, fieldValidation: 'Strict', fieldManager: 'netdra-e2e', force: 'true' };
    return await this.#client.request<T>({
      method: 'PATCH',
      path,
      query,
      body: object,
      contentType: 'application/apply-patch+yaml',
    });
  }

  /**
   * The API with the permissions of the driver's service account.
   * @param node where the pod is that the token is bound to, like the mounted one
   */
  async driverClient(node: string): Promise<KubeClient> {
    const [pod] = await this.#driverPods(node);
    if (pod === undefined) throw new ClusterError('no-driver', `no pod of the driver is on ${node}`);
    const { name, uid } = pod.metadata;
    const boundObjectRef = { apiVersion: 'v1', kind: 'Pod', name, uid };
    const { status } = await this.#client.request<{ status: { token: string } }>({
      method: 'POST',
      path: `/api/v1/namespaces/${this.target.driverNamespace}/serviceaccounts/${pod.spec?.serviceAccountName}/token`,
      body: {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: { expirationSeconds: 600, boundObjectRef },
      },
    });
    const config = new KubeConfig();
    config.loadFromClusterAndUser(this.#config.getCurrentCluster()!, { name: 'driver', token: status.token });
    return this.#stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra-e2e' }));
  }

  /** Removes all test objects in the namespace except those with the given names, and waits until they are gone. */
  async removeAll(except: readonly string[] = []): Promise<void> {
    for (const kind of removedInTurn) {
      const names = (await this.list<object>(kind)).map(({ metadata }) => metadata.name);
      await Promise.all(names.filter((name) => !except.includes(name)).map((name) => this.remove(kind, name)));
    }
    this.hasCreated = false;
  }

  /** Waits until all containers of a pod run. @throws ClusterError `not-in-time` with the pod's state in the API */
  async waitUntilRunning(name: string): Promise<Stored<V1Pod>> {
    return await this.#waitForPod(name, 'runs', ({ status }) => {
      if (status?.phase === 'Failed' || status?.phase === 'Succeeded') {
        const ends = (status.containerStatuses ?? []).map(({ name, state }) => `${name}: ${JSON.stringify(state)}`);
        throw new Error(`it has ended: ${[status.phase, ...ends].join('\n')}`);
      }
      const conditions = status?.conditions ?? [];
      return conditions.some((each) => each.type === 'Ready' && each.status === 'True');
    });
  }

  /** Waits until all containers of a pod have ended. @returns with phase Succeeded or Failed */
  async waitUntilEnded(name: string): Promise<Stored<V1Pod>> {
    const ends = ['Succeeded', 'Failed'];
    return await this.#waitForPod(name, 'has ended', ({ status }) => ends.includes(status?.phase ?? ''));
  }

  /**
   * Runs a command in a pod that runs. A kubelet that was just started answers 404 for each pod until it has seen it, and 500 while
   * it does not reach the runtime: the command, which has not begun then, is tried again.
   * @throws NetdraError `exec-failed`
   */
  async exec(pod: string, container: string, ...command: string[]): Promise<ExecResult> {
    const { timeoutMs = defaultTimeoutMs } = this.target;
    for (const endsAt = systemClock.nowMs() + timeoutMs; ; await systemClock.sleep(pollMs)) {
      try {
        return await execInPod(this.#config, { namespace: this.namespace, pod, container }, command);
      } catch (error) {
        const isRefused = error instanceof NetdraError && /server response: (404|500|502)/.test(String(error.cause));
        if (!isRefused || systemClock.nowMs() > endsAt || (await this.find('Pod', pod)) === undefined) throw error;
      }
    }
  }

  /** The output of a command that has to succeed. @throws Error with its stderr */
  async read(pod: string, container: string, ...command: string[]): Promise<string> {
    const { stdout, stderr, exitCode } = await this.exec(pod, container, ...command);
    if (exitCode !== 0)
      throw new Error(`${command.join(' ')} in ${pod}/${container}: exit code ${exitCode}: ${stderr}`);
    return stdout;
  }

  /**
   * The log of a container, also after it has ended. The runtime may write it some time after the container runs or has ended, seen on
   * busy nodes: an empty one is read again for 10 s.
   */
  async log(pod: string, container: string): Promise<string> {
    const api = this.#config.makeApiClient(CoreV1Api);
    const read = () => api.readNamespacedPodLog({ namespace: this.namespace, name: pod, container });
    return await poll(systemClock, { forMs: 10_000, everyMs: 250 }, read);
  }

  /** Events of objects in the namespace. */
  async events(): Promise<EventText[]> {
    return await this.list<EventText>('Event');
  }

  /** Warnings about pods, except those that occur on every node without a DNS. */
  async warningsOf(pods: readonly string[]): Promise<{ pod: string; text: string }[]> {
    const isMeant = ({ type, reason, regarding }: EventText) =>
      type === 'Warning' && reason !== 'MissingClusterDNS' && pods.includes(regarding.name);
    const warnings = (await this.events()).filter(isMeant);
    return warnings.map(({ reason, note, regarding }) => ({ pod: regarding.name, text: `${reason}: ${note}` }));
  }

  /** Slices that the driver has published for a node. @param node default: that of the tests */
  async slices(node = this.node.name): Promise<Slice[]> {
    const slices = await listSlices(this.#client, this.target.driver);
    return slices.filter(({ spec }) => spec.nodeName === node);
  }

  /** Devices that the driver offers on a node now. @param node default: that of the tests */
  async devices(node?: string): Promise<Device[]> {
    return (await this.slices(node)).flatMap(({ spec }) => spec.devices ?? []);
  }

  /** Deletes the driver's pod on the node and waits for the next one. @throws ClusterError `not-in-time` */
  async restartDriver(): Promise<void> {
    const before = await this.#driverPods();
    if (before.length === 0) throw new ClusterError('no-driver', `no pod of the driver is on ${this.node.name}`);
    const path = `/api/v1/namespaces/${this.target.driverNamespace}/pods`;
    for (const { metadata } of before) await this.#delete(`${path}/${metadata.name}`);
    await this.until('another pod of the driver is ready', async () => {
      const pods = await this.#driverPods();
      const isOld = ({ metadata }: Stored<V1Pod>) => before.some((each) => each.metadata.uid === metadata.uid);
      const isReady = ({ status }: V1Pod) =>
        status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True');
      return pods.length > 0 && !pods.some(isOld) && pods.every(isReady);
    });
  }

  /** Waits for a condition. @throws ClusterError `not-in-time` */
  async until(what: string, condition: () => Promise<boolean>, explain = async () => ''): Promise<void> {
    const { timeoutMs = defaultTimeoutMs } = this.target;
    for (const endsAt = systemClock.nowMs() + timeoutMs; !(await condition()); await systemClock.sleep(pollMs)) {
      if (systemClock.nowMs() < endsAt) continue;
      throw new ClusterError('not-in-time', `not within ${timeoutMs / 1_000} s: ${what}${await explain()}`);
    }
  }

  /** Removes the namespace, without waiting for its content to go. */
  async [Symbol.asyncDispose]() {
    await this.#delete(`/api/v1/namespaces/${this.namespace}`);
    await this.#stack.disposeAsync();
  }

  /** Disconnects from the cluster and keeps the namespace. */
  async leave(): Promise<void> {
    await this.#stack.disposeAsync();
  }

  async #waitForPod(name: string, what: string, isSo: (pod: V1Pod) => boolean): Promise<Stored<V1Pod>> {
    let pod: Stored<V1Pod> | undefined;
    const look = async () => {
      pod = await this.find<V1Pod>('Pod', name);
      return pod !== undefined && isSo(pod);
    };
    await this.until(`pod ${name} ${what}`, look, async () => `\n${await this.#describe(name, pod)}`);
    return pod!;
  }

  /** State and events of a pod, for error messages. */
  async #describe(name: string, pod: V1Pod | undefined): Promise<string> {
    const all = [...(pod?.status?.initContainerStatuses ?? []), ...(pod?.status?.containerStatuses ?? [])];
    const states = all.map((each) => `container ${each.name}: ${JSON.stringify(each.state)}`);
    const events = (await this.events()).filter(({ regarding }) => regarding.name === name);
    return [`phase ${pod?.status?.phase}`, ...states, ...events.map(({ reason, note }) => `${reason}: ${note}`)].join(
      '\n',
    );
  }

  async #driverPods(node = this.node.name): Promise<Stored<V1Pod>[]> {
    const path = `/api/v1/namespaces/${this.target.driverNamespace}/pods`;
    const pods = await this.#list<Stored<V1Pod>>(path, { labelSelector: driverSelector });
    return pods.filter(({ spec }) => spec?.nodeName === node);
  }

  async #list<T>(path: string, query: Record<string, string> = {}): Promise<T[]> {
    return (await this.#client.request<KubeList<T>>({ method: 'GET', path, query })).items;
  }

  async #delete(path: string, body: object = {}): Promise<void> {
    try {
      await this.#client.request({
        method: 'DELETE',
        path,
        body: { apiVersion: 'v1', kind: 'DeleteOptions', ...body },
      });
    } catch (error) {
      if (!isKubeError(error) || error.httpStatus !== 404) throw error;
    }
  }

  #path(kind: Kind, namespace = this.namespace): string {
    const [root, plural] = places[kind];
    return clusterScoped.includes(kind) ? `${root}/${plural}` : `${root}/namespaces/${namespace}/${plural}`;
  }
}
