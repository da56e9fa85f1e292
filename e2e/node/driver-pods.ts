import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { V1DaemonSet } from '@kubernetes/client-node';
import { testNode } from '../../test/doubles/objects.ts';
import { startTlsFront, type TlsFront } from '../../test/doubles/tls-front.ts';
import { renderObjects } from '../release/chart.ts';
import { driverImage, writeDriverArchive } from '../release/driver-image.ts';
import type { Bench } from './bench.ts';
import { toContainerConfig } from './daemon-set-pod.ts';
import { importArchive } from './import-archive.ts';
import { run } from './packages/run.ts';
import { runPod, type Sandbox } from './pod.ts';
import { cacheFolder } from './tools.ts';

/** The driver in a pod. */
export interface DriverPod {
  sandbox: Sandbox;
  containerId: string;
  /** What it has logged. */
  log(): string;
}

/** The driver as clusters run it: from its image, in pods of the chart's DaemonSet, with a service account. */
export class DriverPods implements AsyncDisposable {
  readonly #bench: Bench;
  readonly #daemonSet: V1DaemonSet;
  readonly #account: ServiceAccount;
  readonly #httpPort: number;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    bench: Bench,
    parts: { daemonSet: V1DaemonSet; account: ServiceAccount; httpPort: number },
    stack: AsyncDisposableStack,
  ) {
    this.#bench = bench;
    this.#daemonSet = parts.daemonSet;
    this.#account = parts.account;
    this.#httpPort = parts.httpPort;
    this.#stack = stack;
  }

  /**
   * Gives the image to the bench's containerd. No driver runs yet.
   * @param values of `kubeletPlugin`, besides the paths of this node
   */
  static async create(bench: Bench, values: object): Promise<DriverPods> {
    await using stack = new AsyncDisposableStack();
    // What mountPropagation: HostToContainer asks of a node; systemd does it for all of /.
    run('mount', ['--make-rshared', '/']);
    stack.defer(() => void run('mount', ['--make-rprivate', '/']));
    await importImage(bench);
    const account = stack.use(await ServiceAccount.create(bench));
    const httpPort = 18_080;
    const objects = renderObjects({ values: { ...pathsOf(bench, values), http: { port: httpPort } } });
    const daemonSet = objects.find(({ kind }) => kind === 'DaemonSet') as V1DaemonSet;
    return new DriverPods(bench, { daemonSet, account, httpPort }, stack.move());
  }

  /** Starts the container in a pod of its own, as the kubelet does. Ended with this at the latest. */
  async start(): Promise<DriverPod> {
    const uid = randomUUID();
    const config = toContainerConfig(this.#daemonSet, { 'spec.nodeName': testNode, 'metadata.uid': uid });
    config.envs?.push(...this.#account.envs);
    config.mounts?.push(this.#account.mount);
    const { cri } = this.#bench.containerd;
    const name = `netdra-${uid.slice(0, 5)}`;
    const sandbox = await runPod(cri, { name, namespace: 'kube-system', uid, hostNetwork: true });
    const request = { podSandboxId: sandbox.id, config, sandboxConfig: sandbox.config };
    const { containerId } = await cri.call('CreateContainer', request);
    await cri.call('StartContainer', { containerId });
    // Before the API server goes, to which it would connect again and again.
    this.#stack.defer(async () => void (await cri.call('StopContainer', { containerId, timeout: 10 })));
    const log = () => readFileSync(join(sandbox.config.logDirectory ?? '', 'driver.log'), 'utf8');
    return { sandbox, containerId, log };
  }

  /** What the kubelet's readiness probe does. @throws Error with the answer */
  async checkReady(): Promise<void> {
    const response = await fetch(`http://127.0.0.1:${this.#httpPort}/readyz`);
    if (!response.ok) throw new Error(await response.text());
  }

  async [Symbol.asyncDispose]() {
    await this.#stack.disposeAsync();
  }
}

/** Values that put the chart's paths where this node has its things. */
function pathsOf({ settings, containerd }: Bench, values: object) {
  return {
    image: { repository: driverImage.replace(/:test$/, ''), tag: 'test' },
    kubeletPlugin: {
      ...values,
      kubeletPluginsDirectoryPath: settings.kubeletPluginsDir,
      kubeletRegistrarDirectoryPath: settings.kubeletRegistryDir,
      cdiDirectoryPath: settings.cdiDir,
      nriDirectoryPath: dirname(containerd.nriSocketPath),
    },
    cni: { enabled: true, binDirectoryPath: containerd.cniBinDir },
  };
}

async function importImage({ dir, containerd }: Bench): Promise<void> {
  const archive = join(dir, 'driver.tar');
  writeDriverArchive(archive, cacheFolder(process.env));
  await importArchive(containerd, archive, [driverImage]);
  rmSync(archive);
}

/** The API server by TLS, as pods see it, with what the kubelet mounts for a service account. */
class ServiceAccount implements AsyncDisposable {
  readonly envs: { key: string; value: string }[];
  readonly mount: { containerPath: string; hostPath: string; readonly: boolean };
  readonly #front: TlsFront;

  private constructor(front: TlsFront, hostPath: string) {
    this.envs = [
      { key: 'KUBERNETES_SERVICE_HOST', value: '127.0.0.1' },
      { key: 'KUBERNETES_SERVICE_PORT', value: String(front.port) },
    ];
    this.mount = { containerPath: '/var/run/secrets/kubernetes.io/serviceaccount', hostPath, readonly: true };
    this.#front = front;
  }

  static async create({ api, dir: benchDir }: Bench): Promise<ServiceAccount> {
    const front = await startTlsFront(api.url);
    const dir = mkdtempSync(join(benchDir, 'serviceaccount-'));
    const files = { token: 'token', 'ca.crt': front.certificate, namespace: 'kube-system' };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
    return new ServiceAccount(front, dir);
  }

  async [Symbol.asyncDispose]() {
    await this.#front[Symbol.asyncDispose]();
  }
}
