import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import type { App } from '../../src/app/app.ts';
import { LogRing } from '../../src/app/log-ring.ts';
import type { Settings } from '../../src/instance/settings.ts';
import { systemClock } from '../../src/lib/clock.ts';
import type { Logger } from '../../src/lib/logger.ts';
import { ApiServer } from '../../test/doubles/api-server.ts';
import { claimsOf } from '../../test/doubles/claims-of.ts';
import { Kubelet } from '../../test/doubles/kubelet.ts';
import { buildNode, type Identified, testDriver, testNode } from '../../test/doubles/objects.ts';
import { defaultSettings } from '../../test/doubles/settings.ts';
import type { IpLink } from '../ip-link.ts';
import { type Containerd, type ContainerdOptions, startContainerd } from './containerd.ts';
import type { CallOptions } from './cri.ts';
import { DriverProcess } from './driver-process.ts';
import {
  type ContainerSpec,
  createContainer,
  type ExecResult,
  exec,
  removePodSandboxes,
  runContainer,
  runPod,
  type Sandbox,
  startContainer,
} from './pod.ts';
import { locateGate } from './tools.ts';

/** Far longer than it takes: other programs may have the processors. */
const driverStartsMs = 120_000;

export interface BenchOptions extends Pick<ContainerdOptions, 'version' | 'requestTimeoutMs' | 'tools'> {
  logger: Logger;
  settings?: Partial<Settings>;
}

/** A container of a running pod. */
export interface RunningContainer {
  id: string;
  exec(...command: string[]): Promise<ExecResult>;
}

/**
 * A node: real containerd, doubles of the kubelet and the API server, and the driver. Several nodes can
 * follow each other on one machine.
 */
export class Bench implements AsyncDisposable {
  readonly api: ApiServer;
  readonly kubelet: Kubelet;
  readonly containerd: Containerd;
  readonly settings: Settings;
  readonly dir: string;
  readonly #logger: Logger;
  readonly #stack: AsyncDisposableStack;
  #app: App | undefined;
  #attempts = 0;
  /** Pods that were started and have not ended, by UID. */
  readonly #pods = new Map<string, Identified<V1Pod>>();

  private constructor(
    parts: {
      api: ApiServer;
      kubelet: Kubelet;
      containerd: Containerd;
      settings: Settings;
      dir: string;
      logger: Logger;
    },
    stack: AsyncDisposableStack,
  ) {
    this.api = parts.api;
    this.kubelet = parts.kubelet;
    this.containerd = parts.containerd;
    this.settings = parts.settings;
    this.dir = parts.dir;
    this.#logger = parts.logger;
    this.#stack = stack;
  }

  /** Starts everything except the driver: see {@link startDriver}. */
  static async start(options: BenchOptions): Promise<Bench> {
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'netdra-bench-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    const [registryDir, cdiDir, pluginsDir] = ['registry', 'cdi', 'plugins'].map((name) => join(dir, name)) as [
      string,
      string,
      string,
    ];
    for (const each of [registryDir, cdiDir, pluginsDir]) mkdirSync(each);
    const api = stack.use(await ApiServer.start());
    api.create(buildNode());
    const kubeconfig = join(dir, 'kubeconfig');
    await api.writeKubeconfig(kubeconfig);
    const { logger, settings: more, ...containerdOptions } = options;
    const containerdDir = join(dir, 'containerd');
    mkdirSync(containerdDir);
    const containerd = stack.use(
      await startContainerd({ ...containerdOptions, dir: containerdDir, cdiSpecDirs: [cdiDir] }),
    );
    const kubelet = stack.use(await Kubelet.start({ registryDir, getClaim: claimsOf(api) }));
    const settings: Settings = {
      ...defaultSettings(),
      driverName: testDriver,
      nodeName: testNode,
      kubeconfig,
      kubeletPluginsDir: pluginsDir,
      kubeletRegistryDir: registryDir,
      cdiDir,
      deviceInfoDir: join(dir, 'devinfo'),
      cniBinDirs: [containerd.cniBinDir],
      nriSocket: containerd.nriSocketPath,
      attributesDir: join(dir, 'attributes'),
      downwardApiDir: join(dir, 'pods'),
      ...(more?.startGate === 'file' ? {} : { gateProgram: locateGate() }),
      simulate: { pfs: 1, vfsPerPf: 8 },
      ...more,
    };
    const parts = { api, kubelet, containerd, settings, dir, logger };
    return new Bench(parts, stack.move());
  }

  /** Starts the driver and waits until it is known to kubelet and runtime. */
  async startDriver(more: Partial<Settings> = {}): Promise<void> {
    // Not imported at the top: a test with the driver in a separate process need not load all of it here.
    const { startApp } = await import('../../src/app/app.ts');
    const log = { logger: this.#logger, ring: new LogRing() };
    this.#app = await startApp({ ...this.settings, ...more }, log);
    await this.kubelet.waitForDriver(testDriver, driverStartsMs);
    await this.#app.whenConnected();
  }

  /**
   * Starts a driver that can be killed, and waits until it is known to kubelet and runtime. The caller ends it.
   * @throws Error with its stderr if it exits, or is not up after two minutes
   */
  async startProcess(settings: Partial<Settings> = {}): Promise<DriverProcess> {
    // Not imported at the top: in e2e/vm there is no esbuild.
    const { builtDriver } = await import('./built-driver.ts');
    const driver = new DriverProcess({ ...this.settings, ...settings }, await builtDriver());
    const isUp = () => ['connected over NRI', 'driver started'].every((line) => driver.messages().includes(line));
    for (const endsAt = performance.now() + driverStartsMs; !isUp(); await systemClock.sleep(10)) {
      if (driver.hasExited || performance.now() > endsAt) {
        await driver.stop('SIGKILL');
        throw new Error(`the driver did not start: ${driver.stderr}`);
      }
    }
    await this.kubelet.waitForDriver(testDriver, driverStartsMs);
    return driver;
  }

  async stopDriver(): Promise<void> {
    await this.#app?.[Symbol.asyncDispose]();
    this.#app = undefined;
  }

  /** In the kubelet's order: prepare, then the sandbox. @throws KubeletError, CriError */
  async startPod(pod: Identified<V1Pod>, more: { hostNetwork?: boolean } = {}): Promise<Sandbox> {
    await this.prepare(pod);
    return await this.runSandbox(pod, more);
  }

  /** @throws KubeletError */
  async prepare(pod: Identified<V1Pod>): Promise<void> {
    const { name, namespace, uid } = pod.metadata;
    this.#pods.set(uid, pod);
    if (this.api.get('Pod', name, namespace) === undefined) this.api.create(pod);
    await this.kubelet.prepare(pod);
  }

  /** @param options an abort cancels the call, as when the kubelet dies */
  async runSandbox(
    pod: Identified<V1Pod>,
    more: { hostNetwork?: boolean } = {},
    options: CallOptions = {},
  ): Promise<Sandbox> {
    const { name, namespace, uid } = pod.metadata;
    // Each attempt is another sandbox, as with the kubelet: a refused one may still hold its name.
    return await runPod(this.containerd.cri, { name, namespace, uid, attempt: this.#attempts++, ...more }, options);
  }

  /** Creates and starts a container of the pod with the CDI devices that the kubelet has for it. @throws CriError */
  async startContainer(sandbox: Sandbox, pod: Identified<V1Pod>, name = 'main'): Promise<RunningContainer> {
    return this.#running(await runContainer(this.containerd.cri, sandbox, this.#containerSpec(pod, name)));
  }

  /** The first part of {@link startContainer}. @returns the container's id */
  async createContainer(sandbox: Sandbox, pod: Identified<V1Pod>, name = 'main'): Promise<string> {
    return await createContainer(this.containerd.cri, sandbox, this.#containerSpec(pod, name));
  }

  /** The second part, which the kubelet does not repeat for a pod that is never restarted. @throws CriError */
  async start(containerId: string): Promise<RunningContainer> {
    await startContainer(this.containerd.cri, containerId);
    return this.#running(containerId);
  }

  /** Pid of a container's first process. */
  async pidOf({ id: containerId }: RunningContainer): Promise<number> {
    const { info } = await this.containerd.cri.call('ContainerStatus', { containerId, verbose: true });
    return JSON.parse(info.info ?? '{}').pid;
  }

  /** In the kubelet's order: remove the sandboxes, then unprepare. */
  async endPod(pod: Identified<V1Pod>): Promise<void> {
    await this.endSandboxes(pod);
    await this.kubelet.unprepare(pod);
    const { name, namespace, uid } = pod.metadata;
    this.#pods.delete(uid);
    if (this.api.get('Pod', name, namespace) !== undefined) this.api.delete('Pod', name, namespace);
  }

  /** The first part of {@link endPod}. */
  async endSandboxes(pod: Identified<V1Pod>): Promise<void> {
    await removePodSandboxes(this.containerd.cri, pod.metadata.uid);
  }

  /** Ends pods that a failed test left running, so that the next one can start. */
  async endAllPods(): Promise<void> {
    for (const pod of [...this.#pods.values()]) await this.endPod(pod);
  }

  /** Names of the VF interfaces that are in the host's namespace now. */
  hostVfs(): string[] {
    const links = JSON.parse(execFileSync('ip', ['-j', 'link']).toString()) as { ifname: string }[];
    const pattern = new RegExp(`^${this.settings.simulatePrefix}\\d+v\\d+$`);
    return links
      .map(({ ifname }) => ifname)
      .filter((name) => pattern.test(name))
      .sort();
  }

  /**
   * Files of claims, CDI specs and device-info files that exist now. Folders
   * that unprepare has renamed do not count: they are removed after its answer, or by the next driver.
   */
  claimFiles(): string[] {
    const { kubeletPluginsDir, cdiDir, deviceInfoDir = '' } = this.settings;
    const own = join(kubeletPluginsDir, testDriver, 'dra-device-metadata');
    const dirs = [own, cdiDir, deviceInfoDir].filter((dir) => existsSync(dir));
    return dirs.flatMap((dir) => readdirSync(dir)).filter((name) => !name.startsWith('.removed-'));
  }

  async [Symbol.asyncDispose]() {
    await this.endAllPods();
    await this.stopDriver();
    await this.#stack.disposeAsync();
  }

  #containerSpec(pod: Identified<V1Pod>, name: string): ContainerSpec {
    return { name, attempt: this.#attempts++, cdiDevices: this.kubelet.cdiDevicesForContainer(pod, name) };
  }

  #running(id: string): RunningContainer {
    return { id, exec: (...command) => exec(this.containerd.cri, id, command) };
  }
}

/** The links of a network namespace as iproute2 sees them. */
export function ipLinks({ netnsPath }: Sandbox): IpLink[] {
  return JSON.parse(execFileSync('nsenter', [`--net=${netnsPath}`, 'ip', '-j', 'addr']).toString());
}

/** Like the kubelet: retries for a while, with pauses. */
export async function retry<T>(task: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await task();
    } catch (error) {
      if (attempt === 15) throw error;
      await systemClock.sleep(500);
    }
  }
}
