import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { type RequestOptions, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { KubeConfig, type KubernetesObject, type V1Node, type V1Pod } from '@kubernetes/client-node';
import { KubeClient, ResourceApi, type ResourceClaim } from '../../../src/framework/kube/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { buildNode, buildPod, type Identified } from '../../../test/doubles/objects.ts';
import { renderObjects } from '../../release/chart.ts';
import { ControlPlane, type ControlPlaneOptions } from '../control-plane.ts';
import { readPrograms } from '../programs.ts';

const driverAccount = { namespace: 'kube-system', name: 'netdra' };

/** A client of the API server with the permissions of one user. */
export interface ApiUser {
  client: KubeClient;
  resources: ResourceApi;
}

export interface ApiClusterOptions extends Pick<ControlPlaneOptions, 'featureGates' | 'apiVersions'> {
  /** Values of the chart. */
  values?: Record<string, unknown>;
}

/** A real API server with the chart's objects, and clients of its users. Nothing acts on its objects. */
export class ApiCluster implements AsyncDisposable {
  readonly admin: ApiUser;
  readonly #config: KubeConfig;
  readonly #controlPlane: ControlPlane;
  readonly #stack: AsyncDisposableStack;
  readonly #drivers = new Map<string, ApiUser>();

  private constructor(config: KubeConfig, controlPlane: ControlPlane, stack: AsyncDisposableStack) {
    this.#config = config;
    this.#controlPlane = controlPlane;
    this.#stack = stack;
    this.admin = this.#open(config);
  }

  /** Works only in the suite that e2e/cluster/run.ts starts. @throws NodeError, NetdraError `programs-missing` */
  static async start({ values = {}, ...options }: ApiClusterOptions = {}): Promise<ApiCluster> {
    await using stack = new AsyncDisposableStack();
    const { etcd, kubernetes } = readPrograms(process.env);
    const dir = mkdtempSync(join(tmpdir(), 'api-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const controlPlane = stack.use(
      await ControlPlane.start({ ...options, dir, etcd, kubernetes, apiServerOnly: true }),
    );
    const config = new KubeConfig();
    config.loadFromFile(controlPlane.adminKubeconfig);
    const cluster = new ApiCluster(config, controlPlane, stack.move());
    for (const object of renderObjects({ values })) await cluster.create(object);
    return cluster;
  }

  /** The CA that signed the API server's certificate, PEM. */
  get certificateAuthority(): string {
    return Buffer.from(this.#config.getCurrentCluster()?.caData ?? '', 'base64').toString();
  }

  /** Creates an object as the administrator. */
  async create<T extends KubernetesObject>(object: T): Promise<T> {
    return await this.admin.client.request<T>({ method: 'POST', path: collectionOf(object), body: object });
  }

  /** Creates a claim with its allocation, as user and scheduler do. The bytes of opaque parameters are preserved. */
  async createClaim(claim: Identified<object> & { status?: object }): Promise<Identified<ResourceClaim>> {
    const { status, ...rest } = claim;
    const created = await this.create(rest as Identified<ResourceClaim>);
    const path = `${collectionOf(claim)}/${claim.metadata.name}/status`;
    return await this.admin.client.request({ method: 'PUT', path, body: { ...created, status } });
  }

  /** The driver with the token that a node's kubelet gives the driver's pod. Creates the node and the pod once. */
  async driverOn(node: string): Promise<ApiUser> {
    const known = this.#drivers.get(node);
    if (known !== undefined) return known;
    const driver = this.#open(withToken(this.#config, await this.driverToken(node)));
    this.#drivers.set(node, driver);
    return driver;
  }

  /** The kubelet of a node, with its certificate. */
  kubeletOn(node: string): ApiUser {
    const { authority, server } = this.#controlPlane;
    const config = new KubeConfig();
    config.loadFromFile(authority.kubeconfig(`kubelet-${node}`, `/O=system:nodes/CN=system:node:${node}`, server));
    return this.#open(config);
  }

  /** The token of {@link driverOn}. */
  async driverToken(node: string): Promise<string> {
    const { uid: _, ...metadata } = buildNode(node).metadata;
    await this.create<V1Node>({ ...buildNode(node), metadata });
    const { namespace, name: serviceAccountName } = driverAccount;
    const template = buildPod(`netdra-${node}`, { namespace, nodeName: node });
    const pod = await this.create<V1Pod>({ ...template, spec: { ...template.spec!, serviceAccountName } });
    const { name = '', uid = '' } = pod.metadata ?? {};
    return await this.#requestToken({ kind: 'Pod', apiVersion: 'v1', name, uid });
  }

  /** The driver with a token that is bound to no node. */
  async driverOnNoNode(): Promise<ApiUser> {
    return this.#open(withToken(this.#config, await this.#requestToken()));
  }

  async #requestToken(boundObjectRef?: object): Promise<string> {
    const { namespace, name } = driverAccount;
    const { status } = await this.admin.client.request<{ status: { token: string } }>({
      method: 'POST',
      path: `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`,
      body: { spec: { audiences: [], boundObjectRef } },
    });
    return status.token;
  }

  /** Sends a request of the administrator with an exact body. @returns the text of the answer */
  async send(method: string, path: string, body?: string, contentType = 'application/json'): Promise<string> {
    const options: RequestOptions = { method, headers: { 'content-type': contentType } };
    await this.#config.applyToHTTPSOptions(options);
    const sent = request(`${this.#config.getCurrentCluster()?.server}${path}`, options).end(body);
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    const answered = await text(answer);
    if (answer.statusCode !== 200) throw new Error(`${method} ${path}: ${answer.statusCode} ${answered}`);
    return answered;
  }

  /** Runs kubectl as the administrator. @returns its output; on failure, the error text */
  kubectl(...args: string[]): string {
    return this.#controlPlane.kubectl(...args);
  }

  /** Minor version of the API server: 36 for v1.36.3. */
  async minorVersion(): Promise<number> {
    const { minor } = await this.admin.client.request<{ minor: string }>({ method: 'GET', path: '/version' });
    return Number.parseInt(minor, 10);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  #open(config: KubeConfig): ApiUser {
    const client = this.#stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra/test' }));
    return { client, resources: new ResourceApi(client) };
  }
}

function withToken(config: KubeConfig, token: string): KubeConfig {
  const cluster = config.getCurrentCluster();
  if (cluster === null) throw new Error('the kubeconfig has no cluster');
  const other = new KubeConfig();
  other.loadFromClusterAndUser(cluster, { name: 'token', token });
  return other;
}

const plurals: Record<string, string> = {
  ValidatingAdmissionPolicy: 'validatingadmissionpolicies',
  DeviceClass: 'deviceclasses',
};

function collectionOf({ apiVersion = '', kind = '', metadata }: KubernetesObject): string {
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespace = metadata?.namespace === undefined ? '' : `/namespaces/${metadata.namespace}`;
  return `${root}${namespace}/${plurals[kind] ?? `${kind.toLowerCase()}s`}`;
}
