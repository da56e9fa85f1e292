import { setImmediate } from 'node:timers/promises';
import { ClaimStatusWriter, createClaimStatusApi, withClaimStatus } from '../../src/framework/claimstatus/index.ts';
import { KubeClient, ResourceApi, type ResourceClaim } from '../../src/framework/kube/index.ts';
import { fetchClaims } from '../../src/framework/kubeletplugin/claims.ts';
import { createSliceApi, type Device, SlicePublisher } from '../../src/framework/resourceslice/index.ts';
import { ApiServer } from '../doubles/api-server.ts';
import { kubeConfigOf } from '../doubles/kube.ts';
import { RecordingLogger } from '../doubles/logger.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { buildClaim, buildNode, buildPod, testDriver as driver } from '../doubles/objects.ts';
import { Traffic } from './traffic.ts';
import { discoverVfs } from './vfs.ts';

/** User agents of the clients. */
export const agents = { driver: 'netdra', scheduler: 'scheduler' };

export interface FleetOptions {
  nodes: number;
  vfsPerNode: number;
  /** For the drivers' waiting times, from 0 up to 1. */
  random: () => number;
}

/** A pod's claim. */
export interface FleetClaim {
  namespace: string;
  name: string;
  uid: string;
}

/** The parts of a node's driver that communicate with the API server. */
interface FleetNode {
  name: string;
  devices: Device[];
  publisher: SlicePublisher;
  status: ClaimStatusWriter;
  resources: ResourceApi;
}

/**
 * The driver's own code for the API server, for many nodes, each with its own client and connections, and an API
 * server double. Time is simulated: it advances only when all are waiting, so an hour takes seconds, and no answer is
 * ever late.
 */
export class Fleet implements AsyncDisposable {
  readonly api: ApiServer;
  readonly clock: ManualClock;
  readonly traffic: Traffic;
  readonly #nodes: FleetNode[];
  readonly #stack: AsyncDisposableStack;

  private constructor(
    parts: Pick<Fleet, 'api' | 'clock' | 'traffic'>,
    nodes: FleetNode[],
    stack: AsyncDisposableStack,
  ) {
    this.api = parts.api;
    this.clock = parts.clock;
    this.traffic = parts.traffic;
    this.#nodes = nodes;
    this.#stack = stack;
  }

  /** The cluster, with a scheduler that watches all slices and claims; no driver has started yet. */
  static async create({ nodes, vfsPerNode, random }: FleetOptions): Promise<Fleet> {
    await using stack = new AsyncDisposableStack();
    const clock = new ManualClock();
    const api = stack.use(await ApiServer.start());
    const traffic = stack.use(new Traffic(() => clock.nowMs()));
    const logger = new RecordingLogger();
    const open = (userAgent: string) => stack.use(new KubeClient(kubeConfigOf(api), { clock, userAgent }));
    const devices = await discoverVfs(vfsPerNode);
    const members: FleetNode[] = [];
    for (let index = 0; index < nodes; index++) {
      const name = `worker-${String(index).padStart(4, '0')}`;
      api.create(buildNode(name));
      const kube = open(agents.driver);
      const resources = new ResourceApi(kube);
      const place = { driver, nodeName: name };
      const publisher = new SlicePublisher(createSliceApi(kube, resources, place), { ...place, clock, logger, random });
      const status = new ClaimStatusWriter(createClaimStatusApi(resources), { driver, clock, logger });
      stack.use(status);
      stack.use(publisher);
      members.push({ name, devices, publisher, status, resources });
    }
    stack.use(watchAll(open(agents.scheduler)));
    const owned = stack.move();
    return new Fleet({ api, clock, traffic }, members, owned);
  }

  /** All drivers publish, for the first time at the same moment. */
  async publish(): Promise<void> {
    for (const { name, devices, publisher } of this.#nodes) publisher.publish({ pools: { [name]: { devices } } });
    await this.settle();
  }

  /** On each node a VF disappears. */
  async loseVf(): Promise<void> {
    for (const node of this.#nodes) node.devices = node.devices.slice(0, -1);
    await this.publish();
  }

  /** On each node a pod with one VF starts: its claim is allocated and prepared, and its status is written. */
  async startPods(round: number): Promise<FleetClaim[]> {
    const claims = this.#nodes.map(({ name, devices }) => {
      const pod = buildPod(`pod-${round}-${name}`, { nodeName: name });
      const claim = buildClaim(pod.metadata.name, {
        driver,
        nodeName: name,
        requests: [{ name: 'vf', devices: [devices[0]?.name ?? ''] }],
        pods: [pod],
      });
      this.api.create(claim);
      const { namespace, name: claimName, uid } = claim.metadata;
      return { namespace, name: claimName, uid };
    });
    await Promise.all(this.#nodes.map((node, index) => startPod(node, claims[index] as FleetClaim)));
    await this.settle();
    return claims;
  }

  /** As the claim controller does once no pod uses a claim. The API server then drops the status of its devices. */
  deallocate(claims: FleetClaim[]): void {
    for (const { name } of claims) {
      this.api.edit<ResourceClaim>('ResourceClaim', name, (claim) => {
        delete claim.status;
      });
    }
  }

  /** The kubelet unprepares the claims. */
  async endPods(claims: FleetClaim[]): Promise<void> {
    for (const [index, claim] of claims.entries()) this.#nodes[index]?.status.remove(claim);
    await this.settle();
  }

  /** Advances time from one sleeper's end to the next, until none is due before the end. */
  async pass(ms: number): Promise<void> {
    // Drivers have to notice closed connections first: their retries are due before anything that they wait for now.
    await this.settle();
    for (const endMs = this.clock.nowMs() + ms; ; ) {
      const leftMs = endMs - this.clock.nowMs();
      const [nextMs = Infinity] = this.clock.sleeping();
      this.clock.advance(Math.min(nextMs, leftMs));
      await this.settle();
      if (nextMs >= leftMs) return;
    }
  }

  /** Waits until no answer is pending: only time can cause new activity then. */
  async settle(): Promise<void> {
    for (let quiet = 0, seen = -1; quiet < 20; quiet++) {
      await setImmediate();
      if (this.traffic.underWay > 0 || this.traffic.started !== seen) quiet = 0;
      seen = this.traffic.started;
    }
  }

  async [Symbol.asyncDispose]() {
    await this.#stack.disposeAsync();
  }
}

/** The driver's requests when the kubelet prepares a claim and the pod's sandbox gets its VF. */
async function startPod({ name, devices, resources, status }: FleetNode, claim: FleetClaim): Promise<void> {
  const claims = await fetchClaims(resources, [claim], AbortSignal.timeout(60_000));
  const plugin = {
    prepareResourceClaims: async () => new Map([[claim.uid, { devices: [] }]]),
    unprepareResourceClaims: async () => new Map(),
  };
  await withClaimStatus(plugin, status).prepareResourceClaims(claims, { signal: AbortSignal.timeout(60_000) });
  const networkData = { interfaceName: 'net1', ips: ['192.0.2.10/24'], hardwareAddress: '02:00:00:08:00:00' };
  const device = devices[0]?.name ?? '';
  status.set(claim, [{ pool: name, device, ready: true, reason: 'Attached', networkData }]);
}

/** The scheduler's part: the additional cost of every write for each client that watches everything. */
function watchAll(kube: KubeClient): AsyncDisposable {
  const stop = new AbortController();
  const watches = ['resourceslices', 'resourceclaims'].map(async (path) => {
    const resources = new ResourceApi(kube);
    try {
      for await (const _ of resources.watch<ResourceClaim>({ path, query: {}, signal: stop.signal }));
    } catch {
      // Ended by us, or by an outage, after which its events are not needed.
    }
  });
  return {
    async [Symbol.asyncDispose]() {
      stop.abort();
      await Promise.all(watches);
    },
  };
}
