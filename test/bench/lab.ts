import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { type FakeRuntime, startFakeRuntime } from '../../nri/testing.ts';
import type { Simulation } from '../../src/instance/parse-flags.ts';
import type { Settings } from '../../src/instance/settings.ts';
import { ApiServer } from '../doubles/api-server.ts';
import { claimsOf } from '../doubles/claims-of.ts';
import { Kubelet } from '../doubles/kubelet.ts';
import type { DraClient, WireClaim } from '../doubles/kubelet-dra-client.ts';
import { buildClaim, buildNode, buildPod, type Identified, testDriver, testNode } from '../doubles/objects.ts';
import { defaultSettings } from '../doubles/settings.ts';
import { startTlsFront } from '../doubles/tls-front.ts';
import type { BenchOptions } from './bench.ts';
import { ShippedDriver, type ShippedDriverOptions } from './shipped-driver.ts';

export interface LabOptions extends Pick<BenchOptions, 'imageDir' | 'workDir'> {
  simulate: Simulation;
}

/** A pod with its claims, as named by the kubelet and the runtime. */
export interface LabPod {
  uid: string;
  name: string;
  claims: WireClaim[];
}

/**
 * The environment of the driver, in which tests call it like a kubelet and a runtime: doubles of the
 * API server, the kubelet and the runtime. The driver's state is on a disk, CDI specs are in memory, as on a node.
 */
export class Lab implements AsyncDisposable {
  readonly api: ApiServer;
  /** TLS port of the API server. */
  readonly apiPort: number;
  readonly runtime: FakeRuntime;
  readonly settings: Settings;
  readonly imageDir: string;
  readonly #kubelet: Kubelet;
  readonly #logPath: string;
  readonly #stack: AsyncDisposableStack;
  #driver: ShippedDriver | undefined;

  private constructor(
    parts: Pick<Lab, 'api' | 'apiPort' | 'runtime' | 'settings' | 'imageDir'> & {
      kubelet: Kubelet;
      logPath: string;
    },
    stack: AsyncDisposableStack,
  ) {
    this.api = parts.api;
    this.apiPort = parts.apiPort;
    this.runtime = parts.runtime;
    this.settings = parts.settings;
    this.#kubelet = parts.kubelet;
    this.imageDir = parts.imageDir;
    this.#logPath = parts.logPath;
    this.#stack = stack;
  }

  static async start({ imageDir, workDir, simulate }: LabOptions): Promise<Lab> {
    await using stack = new AsyncDisposableStack();
    const disk = mkdtempSync(join(workDir, 'lab-'));
    const memory = mkdtempSync(join(tmpdir(), 'netdra-lab-'));
    stack.defer(() => rmSync(memory, { recursive: true, force: true }));
    const [registryDir, cdiDir] = [join(memory, 'registry'), join(memory, 'cdi')];
    // A short path: it contains sockets, whose paths are limited to 107 characters.
    const pluginsDir = join(disk, 'p');
    for (const dir of [registryDir, cdiDir, pluginsDir]) mkdirSync(dir);
    const api = stack.use(await ApiServer.start());
    api.create(buildNode());
    const front = stack.use(await startTlsFront(api.url));
    writeServiceAccount({ certificate: front.certificate });
    const kubelet = stack.use(await Kubelet.start({ registryDir, getClaim: claimsOf(api) }));
    const nriSocket = join(memory, 'nri.sock');
    const runtime = stack.use(await startFakeRuntime({ socketPath: nriSocket }));
    const settings = labSettings({ registryDir, pluginsDir, cdiDir, nriSocket, simulate });
    const logPath = join(disk, 'driver.log');
    return new Lab({ api, apiPort: front.port, runtime, settings, kubelet, imageDir, logPath }, stack.move());
  }

  /**
   * Starts the driver and waits until it is known to kubelet and runtime.
   * @param process how Node.js is started
   */
  async startDriver(
    more: Partial<Settings> = {},
    process: Pick<ShippedDriverOptions, 'preload' | 'engine'> = {},
  ): Promise<ShippedDriver> {
    // Each start has another pod UID, as after an update.
    const settings = { ...this.settings, podUid: randomUUID(), ...more };
    const env = serviceEnv(this.apiPort);
    const driver = new ShippedDriver(this.imageDir, settings, { ...process, logPath: this.#logPath, env });
    this.#driver = driver;
    await Promise.all([
      this.#kubelet.waitForDriver(testDriver, 60_000),
      this.runtime.waitForPlugin(settings.nriPluginName),
    ]);
    return driver;
  }

  async stopDriver(): Promise<void> {
    await this.#driver?.[Symbol.asyncDispose]();
    this.#driver = undefined;
    await this.runtime.waitForLoss(this.settings.nriPluginName);
    await this.#kubelet.until(() => this.#kubelet.plugins(testDriver).length === 0);
  }

  /** The kubelet's connection to the driver. */
  get dra(): DraClient {
    return this.#kubelet.client(testDriver);
  }

  /** Names of the devices that the driver offers, once it has published them all. */
  async devices(): Promise<string[]> {
    const { pfs, vfsPerPf } = this.settings.simulate!;
    return await this.api.until(() => {
      const slices = this.api.objects<{ spec: { devices?: { name: string }[] } }>('ResourceSlice');
      const names = slices.flatMap(({ spec }) => (spec.devices ?? []).map(({ name }) => name));
      return names.length === pfs * vfsPerPf && names;
    }, 30_000);
  }

  /** A pod with claims of one request each, all known to the API server. @param devices of each claim */
  addPod(name: string, devices: string[][], parameters: object): LabPod {
    const claimNames = devices.map((_, index) => `${name}-${index}`);
    const pod = buildPod(name, {
      resourceClaims: claimNames.map((claim) => ({ name: claim, resourceClaimName: claim })),
    });
    const config = [
      {
        source: 'FromClaim' as const,
        parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...parameters },
      },
    ];
    const claims = claimNames.map((claimName, index): Identified<ResourceV1ResourceClaim> => {
      const requests = [{ name: 'vf', devices: devices[index] ?? [] }];
      return buildClaim(claimName, { requests, config, pods: [pod] });
    });
    this.api.create(pod);
    for (const claim of claims) this.api.create(claim);
    return {
      uid: pod.metadata.uid,
      name,
      claims: claims.map(({ metadata: { namespace, name: claim, uid } }) => ({ namespace, name: claim, uid })),
    };
  }

  async [Symbol.asyncDispose]() {
    await this.#driver?.[Symbol.asyncDispose]();
    await this.#stack.disposeAsync();
  }
}

/** @throws Error if a claim was not prepared */
export async function prepare(dra: DraClient, claims: WireClaim[]): Promise<void> {
  checkAnswers((await dra.nodePrepareResources(claims)).claims);
}

/** @throws Error if a claim was not unprepared */
export async function unprepare(dra: DraClient, claims: WireClaim[]): Promise<void> {
  checkAnswers((await dra.nodeUnprepareResources(claims)).claims);
}

function checkAnswers(claims: Record<string, { error: string }>): void {
  for (const { error } of Object.values(claims)) if (error !== '') throw new Error(error);
}

/** Safe to write: this runs on a node with its own /run. */
const serviceAccountDir = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Files that the kubelet mounts into pods. */
export function writeServiceAccount({ certificate, token = 'token' }: { certificate: string; token?: string }): void {
  mkdirSync(serviceAccountDir, { recursive: true });
  const files = { token, 'ca.crt': certificate, namespace: 'kube-system' };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(serviceAccountDir, name), text);
}

/** Variables that the kubelet sets in every pod. */
export function serviceEnv(port: number, host = '127.0.0.1'): Record<string, string> {
  return { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: String(port) };
}

export function labSettings(paths: {
  registryDir: string;
  pluginsDir: string;
  cdiDir: string;
  nriSocket: string;
  simulate: Simulation;
}): Settings {
  return {
    ...defaultSettings(),
    driverName: testDriver,
    nodeName: testNode,
    kubeletPluginsDir: paths.pluginsDir,
    kubeletRegistryDir: paths.registryDir,
    cdiDir: paths.cdiDir,
    nriSocket: paths.nriSocket,
    attributesDir: join(paths.pluginsDir, 'attributes'),
    downwardApiDir: join(paths.pluginsDir, 'pods'),
    httpAddress: '127.0.0.1:19470',
    simulate: paths.simulate,
    // Simulated links outlive the driver. With the default prefix, the driver of the cluster suite would take them over.
    simulatePrefix: 'bench',
  };
}
