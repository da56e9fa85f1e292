import { setTimeout as sleep } from 'node:timers/promises';
import type { V1Pod } from '@kubernetes/client-node';
import { KubeClient } from '../../../src/framework/kube/index.ts';
import { loadKubeConfig } from '../../../src/framework/kube/kube-config.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { makeLinks } from '../../../test/bench/go/links.ts';
import { goDriverName, linksAnnotation } from '../../../test/bench/go/programs.ts';
import { cpuMs, residentMb } from '../../../test/bench/shipped-driver.ts';
import type { Program } from '../../node/program.ts';
import { Cluster } from '../cluster.ts';
import { InstalledDriver } from '../node/driver.ts';
import { nodeName, RealNode } from '../node/real-node.ts';
import { testClaim, testPod } from '../objects.ts';
import type { ClusterPrograms } from '../programs.ts';
import { type Histogram, readHistogram, since } from './histogram.ts';
import { startGoDriver, startGoPlugin } from './neighbours.ts';
import { type PodTimes, PodWatch } from './pod-watch.ts';
import type { Batch, Latency } from './report.ts';

/** What the pods of each kind get. */
export const kinds = {
  none: 'no claim',
  netdra: "netdra's VF, with metadata",
  link: 'a link from the Go plugin, no claim',
  go: "a claim of upstream's test driver with metadata, and a link from the Go plugin",
} as const;
export type Kind = keyof typeof kinds;

/** Kinds that need a program. */
const served: readonly Kind[] = ['netdra', 'link', 'go'];
/** Time for the driver's work after its answers, before its CPU time is read, ms. */
const restMs = 2_000;
const deviceClass = 'go-test-driver';
/** Default of the chart. */
const metricsPort = 9_797;
/** Kubernetes `ResourceSliceMaxDevices`: upstream's test driver has one slice, which the API server refuses with more. */
const mostDevices = 128;

interface Parts {
  node: RealNode;
  cluster: Cluster;
  client: KubeClient;
  /** Only if its pods are measured: before Kubernetes 1.36 it has no support for metadata. */
  goDriver: Program | undefined;
  goPlugin: Program;
  links: string[];
}

/** A cluster of one node with the driver, upstream's DRA test driver and an NRI plugin in Go beside each other. */
export class StartTimes implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #stack: AsyncDisposableStack;
  readonly vfs: number;
  readonly #idleCpuMsPerSecond = new Map<Kind, number>();
  #batches = 0;

  private constructor(parts: Parts, vfs: number, stack: AsyncDisposableStack) {
    this.#parts = parts;
    this.vfs = vfs;
    this.#stack = stack;
  }

  /**
   * @param mostPods maximum number at once
   * @param measured the kinds of pods to measure: upstream's driver is started only for its own
   */
  static async open(programs: ClusterPrograms, mostPods: number, measured: readonly Kind[]): Promise<StartTimes> {
    await using stack = new AsyncDisposableStack();
    const node = stack.use(await RealNode.start(programs));
    // Twice as many as needed at once, as on a node below its limit.
    const vfsOfPf = Math.max(40, mostPods);
    const driver = await InstalledDriver.install(node, { simulate: `2x${vfsOfPf}` });
    const cluster = stack.use(await Cluster.open(driver.target));
    const config = loadKubeConfig(driver.target.kubeconfig);
    const client = stack.use(new KubeClient(config, { clock: systemClock, userAgent: 'netdra-e2e' }));
    const links = makeLinks(mostPods);
    const needsGo = measured.includes('go');
    const devices = Math.min(mostDevices, 2 * mostPods);
    const goDriver = needsGo ? stack.use(await startGoDriver(node, programs.kubernetes, devices)) : undefined;
    const goPlugin = stack.use(await startGoPlugin(node, programs.nriPlugin));
    await cluster.create({
      apiVersion: 'resource.k8s.io/v1',
      kind: 'DeviceClass',
      metadata: { name: deviceClass },
      spec: { selectors: [{ cel: { expression: `device.driver == "${goDriverName}"` } }] },
    } as object);
    const parts = { node, cluster, client, goDriver, goPlugin, links };
    return new StartTimes(parts, 2 * vfsOfPf, stack.move());
  }

  /** CPU time of the driver while no pods are created or deleted. */
  get idleCpuMsPerSecond(): number {
    return this.#idleCpuMsPerSecond.get('netdra') ?? 0;
  }

  /** All kinds in turns, after a warm-up turn of each. @returns after each round, all batches so far */
  async *measure(options: {
    rounds: number;
    counts: readonly number[];
    kinds: readonly Kind[];
  }): AsyncGenerator<readonly Batch[]> {
    const batches: Batch[] = [];
    for (const kind of options.kinds) await this.#batch(kind, 1);
    await this.#rest();
    for (let round = 1; round <= options.rounds; round++) {
      for (const count of options.counts) {
        for (const kind of options.kinds) {
          const batch = await this.#batch(kind, count);
          batches.push(batch);
          console.error(`round ${round}: ${count} with ${kind}: ${(batch.allRunningMs / 1_000).toFixed(2)} s`);
          for (const { pod, text } of batch.warnings) console.error(`  ${pod}: ${text}`);
        }
      }
      yield batches;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  async #rest(): Promise<void> {
    const seconds = 10;
    // The driver reads its devices twice more after pods have gone, for up to ten seconds.
    await sleep(15_000);
    const now = () => new Map(served.map((kind) => [kind, this.#cpuMs(kind) ?? 0]));
    const before = now();
    await sleep(seconds * 1_000);
    for (const [kind, ms] of now()) this.#idleCpuMsPerSecond.set(kind, (ms - (before.get(kind) ?? 0)) / seconds);
  }

  async #batch(kind: Kind, count: number): Promise<Batch> {
    const cluster = this.#parts.cluster;
    // Names are never reused, so that each pod is seen once.
    const names = Array.from({ length: count }, (_, index) => `${kind}-${this.#batches}-${index}`);
    this.#batches += 1;
    using watch = PodWatch.open(this.#parts.client, cluster.namespace);
    const cpuBefore = this.#cpuMs(kind);
    const durationsBefore = await this.#durations(kind);
    const createdAt = new Map<string, number>();
    const startedAt = Date.now();
    await Promise.all(names.map((name, index) => this.#create(kind, name, index, createdAt)));
    const times = await watch.untilRunning(names);
    const starts = await this.#startsOf(times);
    const warnings = await cluster.warningsOf(names);
    const pids = this.#pidsOf(kind);
    const memoryMb = pids.reduce((sum, pid) => sum + residentMb(pid), 0);
    await cluster.removeAll();
    await sleep(restMs);
    const cpu = this.#cpuMs(kind);
    const durations: Batch['durations'] = {};
    for (const [key, after] of await this.#durations(kind)) {
      durations[key] = since(durationsBefore.get(key) ?? [], after);
    }
    const idleMs = ((Date.now() - startedAt) / 1_000) * (this.#idleCpuMsPerSecond.get(kind) ?? 0);
    const smooth = names.filter((name) => !warnings.some(({ pod }) => pod === name));
    const of = (from: (name: string) => number) => smooth.map((name) => (starts.get(name) ?? 0) - from(name));
    return {
      kind: kinds[kind],
      count,
      allRunningMs: Math.max(...[...times.values()].map(({ runningAtMs }) => runningAtMs)) - startedAt,
      fromCreateMs: of((name) => createdAt.get(name) ?? 0),
      fromBindingMs: of((name) => times.get(name)?.boundAtMs ?? 0),
      warnings,
      durations,
      ...(cpu === undefined ? {} : { memoryMb, ...cpuOf(cpu - (cpuBefore ?? 0), idleMs) }),
    };
  }

  async #create(kind: Kind, name: string, index: number, createdAt: Map<string, number>): Promise<void> {
    const cluster = this.#parts.cluster;
    createdAt.set(name, Date.now());
    if (kind === 'netdra') {
      await cluster.create(testClaim(cluster, name, [{ name: 'vf', config: { interfaceName: 'net1' } }]));
    } else if (kind === 'go') {
      await cluster.create(testClaim(cluster, name, [{ name: 'device', deviceClassName: deviceClass }]));
    }
    const claims = kind === 'none' || kind === 'link' ? [] : [{ name: 'nic', resourceClaimName: name }];
    const pod = testPod(cluster, name, { claims, restartPolicy: 'Always' });
    const isLinked = kind === 'link' || kind === 'go';
    const annotations = isLinked ? { [linksAnnotation]: this.#parts.links[index] ?? '' } : {};
    await cluster.create({ ...pod, metadata: { ...pod.metadata, annotations } });
  }

  /** Start times of containers, by the runtime's clock, ms since 1970. */
  async #startsOf(times: ReadonlyMap<string, PodTimes>): Promise<Map<string, number>> {
    const { cri } = this.#parts.node.runtime;
    const entries = [...times].map(async ([name, { containerId }]): Promise<[string, number]> => {
      const { status } = await cri.call('ContainerStatus', { containerId });
      return [name, status.startedAt / 1e6];
    });
    return new Map(await Promise.all(entries));
  }

  /** Durations so far: the kubelet's, of all drivers, and those of the driver. */
  async #durations(kind: Kind): Promise<ReadonlyMap<Latency, Histogram>> {
    const read = async (path: string) => await this.#parts.client.requestText({ method: 'GET', path });
    const kubelet = await read(`/api/v1/nodes/${nodeName}/proxy/metrics`);
    const callOf = (operation: string) =>
      readHistogram(kubelet, 'dra_operations_duration_seconds', `operation_name="${operation}"`);
    const durations = new Map<Latency, Histogram>([
      ['prepare', callOf('PrepareResources')],
      ['unprepare', callOf('UnprepareResources')],
    ]);
    if (kind !== 'netdra') return durations;
    const pods = `/api/v1/namespaces/${this.#parts.cluster.target.driverNamespace}/pods`;
    const [pod] = await this.#parts.node.list<V1Pod>(pods);
    const driver = await read(`${pods}/${pod?.metadata?.name}:${metricsPort}/proxy/metrics`);
    return durations.set('write', readHistogram(driver, 'dra_metadata_write_duration_seconds'));
  }

  /** CPU time used so far by the programs that serve a kind of pod. */
  #cpuMs(kind: Kind): number | undefined {
    const pids = this.#pidsOf(kind);
    return pids.length === 0 ? undefined : pids.reduce((sum, pid) => sum + cpuMs(pid), 0);
  }

  #pidsOf(kind: Kind): number[] {
    const { node, goDriver, goPlugin } = this.#parts;
    const pidsOf: Record<Kind, () => number[]> = {
      none: () => [],
      netdra: () => node.driverPids(),
      link: () => [goPlugin.pid],
      go: () => (goDriver === undefined ? [] : [goDriver.pid, goPlugin.pid]),
    };
    return pidsOf[kind]();
  }
}

function cpuOf(cpuMs: number, idleMs: number): Pick<Batch, 'cpuMs' | 'workCpuMs'> {
  return { cpuMs, workCpuMs: Math.max(0, cpuMs - idleMs) };
}
