import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import {
  type DraPlugin,
  type KubeletPluginHelper,
  type KubeletPluginOptions,
  type PreparedDevice,
  type PrepareResult,
  startKubeletPlugin,
} from '../../../../src/framework/kubeletplugin/index.ts';
import { ClaimMetadata, type ClaimMetadataOptions, layouts } from '../../../../src/framework/metadata/index.ts';
import type { Clock } from '../../../../src/lib/clock.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { ApiServer } from '../../../doubles/api-server.ts';
import { readCdi } from '../../../doubles/cdi.ts';
import { claimsOf } from '../../../doubles/claims-of.ts';
import { openKube } from '../../../doubles/kube.ts';
import { Kubelet } from '../../../doubles/kubelet.ts';
import type { WireClaim } from '../../../doubles/kubelet-dra-client.ts';
import type { KubeletPluginsOptions } from '../../../doubles/kubelet-plugins.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import {
  buildClaim,
  buildPod,
  type ClaimOptions,
  type Identified,
  type PodOptions,
  testDriver,
} from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

/** What the driver does. Default: nothing, and all is well. */
export type Behaviour = Partial<DraPlugin> & {
  /** The result for every claim; default none, which defers all. */
  devices?: PreparedDevice[];
};

export type HelperOptions = Partial<Omit<KubeletPluginOptions, 'metadata'>> & {
  /** Settings of the metadata; `false`: the helper knows none. */
  metadata?: Partial<ClaimMetadataOptions> | false;
};

/** A kubelet, an API server and the directories that a driver needs. */
export class Bench implements AsyncDisposable {
  readonly api: ApiServer;
  readonly kubelet: Kubelet;
  readonly dir: string;
  readonly registryDir: string;
  readonly cdiDir: string;
  readonly logger = new RecordingLogger();
  readonly #stack: AsyncDisposableStack;

  private constructor(parts: { api: ApiServer; kubelet: Kubelet; dir: string }, stack: AsyncDisposableStack) {
    this.api = parts.api;
    this.kubelet = parts.kubelet;
    this.dir = parts.dir;
    this.registryDir = join(parts.dir, 'registry');
    this.cdiDir = join(parts.dir, 'cdi');
    this.#stack = stack;
  }

  static async start(options: Partial<KubeletPluginsOptions> = {}): Promise<Bench> {
    await using stack = new AsyncDisposableStack();
    const dir = stack.use(tempDir()).path;
    mkdirSync(join(dir, 'registry'));
    const api = stack.use(await ApiServer.start());
    const kubelet = stack.use(
      await Kubelet.start({ retryMs: 20, ...options, registryDir: join(dir, 'registry'), getClaim: claimsOf(api) }),
    );
    return new Bench({ api, kubelet, dir }, stack.move());
  }

  dataDir(driver = testDriver): string {
    return join(this.dir, 'plugins', driver);
  }

  /** What a driver's instance is given, but for the driver itself. */
  options({ metadata = {}, ...more }: HelperOptions = {}): KubeletPluginOptions {
    const { driver = testDriver, dataDir = this.dataDir(driver) } = more;
    const clock: Clock = more.clock ?? systemClock;
    return {
      driver,
      dataDir,
      registryDir: this.registryDir,
      claims: this.#stack.use(openKube(this.api)).resources,
      ...(metadata === false
        ? {}
        : {
            metadata: new ClaimMetadata({
              enabled: true,
              driver,
              dataDir,
              cdiDir: this.cdiDir,
              layouts: [layouts.v1],
              ...metadata,
            }),
          }),
      clock,
      logger: this.logger,
      ...more,
    };
  }

  /** Starts an instance of a driver, and waits until the kubelet has it. */
  async startHelper(behaviour: Behaviour = {}, options: HelperOptions = {}): Promise<KubeletPluginHelper> {
    const helper = this.#stack.use(await startKubeletPlugin(testPlugin(behaviour), this.options(options)));
    const endpoint = helper.sockets.dra;
    await this.kubelet.until(() =>
      this.kubelet.plugins().find((plugin) => plugin.endpoint === endpoint && plugin.isConnected),
    );
    await helper.whenRegistered(new AbortController().signal);
    return helper;
  }

  /** A pod with a claim of its own, both known to the API server. */
  addPod(name: string, { containers, ...more }: Partial<ClaimOptions> & Pick<PodOptions, 'containers'> = {}) {
    const resourceClaims = [{ name: 'nic', resourceClaimName: name }];
    const pod = buildPod(name, { resourceClaims, ...(containers === undefined ? {} : { containers }) });
    const requests = [{ name: 'vf', devices: [`dev-${name}`] }];
    const claim = buildClaim(name, { requests, pods: [pod], ...more });
    this.api.create(claim);
    return { pod, claim, wire: wireClaim(claim) };
  }

  /** The same, and the kubelet prepares its claim. */
  async preparePod(...of: Parameters<Bench['addPod']>) {
    const added = this.addPod(...of);
    await this.kubelet.prepare(added.pod);
    return added;
  }

  /** The metadata file of a request as text; `undefined` while there is none. */
  metadataText(claimName: string, request: string, driver = testDriver): string | undefined {
    const path = join(this.dataDir(driver), 'dra-device-metadata', `default_${claimName}`, request, 'metadata.json');
    return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
  }

  /**
   * What a runtime would mount into a container, by path inside: the CDI devices that the kubelet has for it, looked up
   * in the specs.
   * @returns the text of each file, `undefined` where the host has none yet
   * @throws as a runtime would, for an id that no spec has
   */
  mountsOf(pod: Identified<V1Pod>, container = 'main'): Record<string, string | undefined> {
    const ids = this.kubelet.cdiDevicesForContainer(pod, container);
    const { mounts } = readCdi(this.cdiDir, ids);
    return Object.fromEntries(
      mounts.map(({ hostPath, containerPath, options }) => {
        if (!options.includes('ro')) throw new Error(`${containerPath} can be written to`);
        return [containerPath, existsSync(hostPath) ? readFileSync(hostPath, 'utf8') : undefined];
      }),
    );
  }

  /** Names of the CDI specs that are there now. */
  cdiSpecs(): string[] {
    return existsSync(this.cdiDir) ? readdirSync(this.cdiDir).sort() : [];
  }

  /** The claims with files of a driver that are there now. */
  claimDirs(driver = testDriver): string[] {
    const dir = join(this.dataDir(driver), 'dra-device-metadata');
    return existsSync(dir) ? readdirSync(dir).sort() : [];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}

/** A bench with one driver that the kubelet has. */
export async function startBench(behaviour: Behaviour = {}, options: HelperOptions = {}) {
  const bench = await Bench.start();
  const helper = await bench.startHelper(behaviour, options);
  return Object.assign(bench, { helper });
}

export function testPlugin({ devices = [], ...more }: Behaviour): DraPlugin {
  return {
    prepareResourceClaims: async (claims) =>
      new Map(claims.map(({ identity }): [string, PrepareResult] => [identity.uid, { devices }])),
    unprepareResourceClaims: async (claims) => new Map(claims.map(({ uid }) => [uid, undefined])),
    ...more,
  };
}

export function wireClaim({ metadata }: { metadata: { namespace: string; name: string; uid: string } }): WireClaim {
  return { namespace: metadata.namespace, name: metadata.name, uid: metadata.uid };
}

/** A device of the test driver, ready in all but what the test says. */
export function preparedDevice(deviceName: string, more: Partial<PreparedDevice> = {}): PreparedDevice {
  return { requests: ['vf'], poolName: 'node-1', deviceName, cdiDeviceIds: [], ...more };
}
