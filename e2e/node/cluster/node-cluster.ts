import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import { systemClock } from '../../../src/clock.ts';
import type { ApiServer } from '../../../test/doubles/api-server.ts';
import type { ContainerPath } from '../../../test/doubles/api-server-pods.ts';
import { ApiStatusError } from '../../../test/doubles/api-server-status.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { type Identified, testDriver } from '../../../test/doubles/objects.ts';
import { startTlsFront, type TlsFront } from '../../../test/doubles/tls-front.ts';
import { review } from '../../../test/unit/deploy/admission.ts';
import type { OpenCluster } from '../../cluster/describe-cluster.ts';
import type { ClusterTarget } from '../../cluster/target.ts';
import { parseObjects } from '../../release/chart.ts';
import { Bench } from '../bench.ts';
import type { ContainerdSeries } from '../tools.ts';
import { Claims } from './claims.ts';
import { consumerImage, importConsumerImage } from './consumer-image.ts';
import { DriverDaemon, driverNamespace } from './driver-daemon.ts';
import { PodLifecycle } from './pod-lifecycle.ts';

const pollMs = 20;
const manifest = new URL('../../../deploy/manifests/netdra.yaml', import.meta.url);
const vfs = 8;

/**
 * A cluster of one node for the cases of e2e/cluster: real containerd, the driver with simulated VFs, and an API server
 * double by TLS. What controllers, scheduler and kubelet do is played, as far as the cases need it.
 */
export async function startNodeCluster(version: ContainerdSeries): Promise<OpenCluster> {
  await using stack = new AsyncDisposableStack();
  const settings = { simulate: { pfs: 1, vfsPerPf: vfs } };
  const bench = stack.use(await Bench.start({ version, logger: new RecordingLogger(), settings }));
  await importConsumerImage(bench.containerd);
  installManifest(bench.api);
  stack.use(await DriverDaemon.start(bench));
  stack.use(new Pods(bench));
  const front = stack.use(await startTlsFront(bench.api.url));
  const target: ClusterTarget = {
    kubeconfig: writeKubeconfig(bench, front),
    driver: testDriver,
    driverNamespace,
    consumerImage,
    classes: { kernel: 'netdra-kernel', dpdk: 'netdra-dpdk' },
    simulated: true,
    paths: { kubeletPlugins: bench.settings.kubeletPluginsDir, cdi: bench.settings.cdiDir },
    admissionPolicies: true,
    keepFailed: false,
    oldestKubernetes: '1.36',
  };
  const owned = stack.move();
  const close = async () => {
    try {
      const left = bench.claimFiles();
      if (left.length > 0) throw new Error(`after all cases there are still ${left.join(', ')}`);
    } finally {
      await owned.disposeAsync();
    }
  };
  return { target, close };
}

/** The chart's classes, and its policies for claims. What else it has is for real clusters. */
function installManifest(api: ApiServer): void {
  const objects = parseObjects(readFileSync(manifest, 'utf8'));
  for (const object of objects) if (object.kind === 'DeviceClass') api.create(object);
  const policies = objects.filter(({ kind }) => kind === 'ValidatingAdmissionPolicy');
  api.admit('ResourceClaim', (object) => {
    const { name, namespace = '' } = object.metadata;
    const [denied] = review(policies, { operation: 'CREATE', resource: 'resourceclaims', object, namespace });
    if (denied !== undefined) throw new ApiStatusError(422, `resourceclaims "${name}" is forbidden: ${denied}`);
  });
}

function writeKubeconfig({ api, dir }: Bench, { port, certificate }: TlsFront): string {
  const config = JSON.parse(api.kubeconfig());
  config.clusters[0].cluster = {
    server: `https://127.0.0.1:${port}`,
    'certificate-authority-data': Buffer.from(certificate).toString('base64'),
  };
  const path = join(dir, 'kubeconfig-tls');
  writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
  return path;
}

/** All pods but the driver's, and namespaces. */
class Pods implements AsyncDisposable {
  readonly #bench: Bench;
  readonly #claims: Claims;
  readonly #stop = new AbortController();
  readonly #pods = new Map<string, { pod: Identified<V1Pod>; lifecycle: PodLifecycle; running: Promise<void> }>();
  readonly #running: Promise<void>;

  constructor(bench: Bench) {
    this.#bench = bench;
    this.#claims = new Claims(bench.api);
    bench.api.servePods({
      log: (path) => this.#find(path).log(path.container),
      exec: async (path, command) => {
        const { stdout, stderr, exitCode } = await this.#find(path).exec(path.container, command);
        return { stdout: Buffer.from(stdout), stderr: Buffer.from(stderr), exitCode };
      },
    });
    this.#running = this.#watch();
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#running;
    await Promise.allSettled([...this.#pods.values()].map(({ running }) => running));
  }

  async #watch(): Promise<void> {
    for (; !this.#stop.signal.aborted; await systemClock.sleep(pollMs)) {
      this.#makeServiceAccounts();
      for (const pod of this.#bench.api.objects<Identified<V1Pod>>('Pod')) this.#start(pod);
    }
  }

  #start(pod: Identified<V1Pod>): void {
    const { uid, namespace } = pod.metadata;
    if (namespace === driverNamespace || this.#pods.has(uid)) return;
    const lifecycle = new PodLifecycle(this.#bench, this.#claims, pod);
    const running = lifecycle.run(this.#stop.signal).finally(() => this.#pods.delete(uid));
    running.catch(() => undefined);
    this.#pods.set(uid, { pod, lifecycle, running });
  }

  #makeServiceAccounts(): void {
    const { api } = this.#bench;
    for (const { metadata } of api.objects('Namespace')) {
      const account = {
        apiVersion: 'v1',
        kind: 'ServiceAccount',
        metadata: { name: 'default', namespace: metadata.name },
      };
      if (api.get('ServiceAccount', 'default', metadata.name) === undefined) api.create(account);
    }
  }

  #find({ namespace, pod: name }: ContainerPath): PodLifecycle {
    const found = [...this.#pods.values()].find(({ pod: { metadata } }) => {
      return metadata.namespace === namespace && metadata.name === name;
    });
    if (found === undefined) throw new Error(`pods "${name}" not found`);
    return found.lifecycle;
  }
}
