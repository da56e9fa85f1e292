import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { V1Pod } from '@kubernetes/client-node';
import { decodeStream, type MetadataDocument, readMetadataFile } from '../../src/framework/metadata/index.ts';
import type { Device } from '../../src/framework/resourceslice/index.ts';
import type { InventoryPolicy } from '../../src/node/inventory/index.ts';
import { RecordingLogger } from '../../test/doubles/logger.ts';
import { buildClaim, buildPod, type Identified, testDriver } from '../../test/doubles/objects.ts';
import { Bench, type RunningContainer, retry } from '../node/bench.ts';
import { DriverProcess } from '../node/driver-process.ts';
import type { Sandbox } from '../node/pod.ts';
import type { NodeTools } from '../node/tools.ts';
import { MultusStandIn } from './multus-stand-in.ts';
import type { ClaimConfig } from './vf-config.ts';
import type { VfState } from './vfs.ts';

export type Pod = Identified<V1Pod>;

/** A pod with a running container `main`. */
export interface RunningPod {
  pod: Pod;
  sandbox: Sandbox;
  container: RunningContainer;
}

/** Debian's paths of the tools in the guest's image. */
const guestTools: NodeTools = {
  containerdDirs: { '2.1': '/usr/bin', '1.7': '/usr/bin' },
  runc: '/usr/sbin/runc',
  cniBinDir: '/usr/lib/cni',
  busybox: '/usr/bin/busybox',
};

/** Far longer than usual, since processors are emulated. */
const hookTimeoutMs = 20_000;
const driverStartsMs = 240_000;
const vfCount = 14;
/** Of the driver's metrics. */
export const httpAddress = '127.0.0.1:9797';

/** A node with real VFs, with the driver in a separate process, as users start it. */
export class VmNode implements AsyncDisposable {
  readonly bench: Bench;
  readonly multus: MultusStandIn;
  readonly #dir: string;
  readonly #driverPath: string;
  #driver: DriverProcess | undefined;

  private constructor(bench: Bench, multus: MultusStandIn, dir: string, driverPath: string) {
    this.bench = bench;
    this.#driverPath = driverPath;
    this.multus = multus;
    this.#dir = dir;
  }

  /**
   * Starts the node and its driver, and waits until all VFs of both cards are offered.
   * @param driverPath the program from the image
   */
  static async start(driverPath: string): Promise<VmNode> {
    const dir = mkdtempSync(join(tmpdir(), 'netdra-vm-node-'));
    const multusDir = join(dir, 'multus');
    mkdirSync(multusDir);
    const multus = new MultusStandIn(multusDir, guestTools.cniBinDir);
    const policyPath = join(dir, 'policy.yaml');
    writePolicy(policyPath, {});
    const bench = await Bench.start({
      version: '2.1',
      logger: new RecordingLogger(),
      tools: { ...guestTools, cniBinDir: multus.binDir },
      requestTimeoutMs: hookTimeoutMs,
      settings: { simulate: undefined, inventoryPolicy: policyPath, httpAddress },
    });
    const node = new VmNode(bench, multus, dir, driverPath);
    await node.startDriver();
    return node;
  }

  /** Does nothing if it is running. */
  async startDriver(): Promise<void> {
    if (this.#driver !== undefined) return;
    const driver = new DriverProcess(this.bench.settings, this.#driverPath);
    this.#driver = driver;
    const isReady = () =>
      this.bench.kubelet.plugins(testDriver).some(({ isConnected }) => isConnected) &&
      driver.log.some(({ msg }) => msg === 'connected over NRI') &&
      this.offeredDevices().length === vfCount;
    const endsAt = performance.now() + driverStartsMs;
    while (!isReady()) {
      if (performance.now() > endsAt) throw new Error(`the driver does not serve; it said ${this.driverReport()}`);
      await sleep(50);
    }
  }

  async killDriver(): Promise<void> {
    await this.#driver?.stop('SIGKILL');
    this.#driver = undefined;
  }

  /** Replaces the inventory policy, which the running driver follows. Default: one without rules. */
  setPolicy(policy: InventoryPolicy): void {
    writePolicy(join(this.#dir, 'policy.yaml'), policy);
  }

  /** What the driver has logged, without the fields. */
  messages(): string[] {
    return this.#driver?.messages() ?? [];
  }

  /** The end of the driver's log, for a failed case. */
  driverReport(): string {
    const lines = this.#driver?.log.slice(-20).map((line) => JSON.stringify(line)) ?? [];
    return [...lines, this.#driver?.stderr ?? 'nothing: it does not run'].join('\n');
  }

  /** The devices of the driver's only slice. */
  offeredDevices(): Device[] {
    return this.bench.api.objects<{ spec: { devices: Device[] } }>('ResourceSlice').flatMap(({ spec }) => spec.devices);
  }

  /** Creates a pod with a claim of the same name, whose request `vf` has the VFs allocated. Nothing is prepared yet. */
  createPod(name: string, vfs: VfState | VfState[], config: ClaimConfig[]): Pod {
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const requests = [{ name: 'vf', devices: [vfs].flat().map(deviceName) }];
    this.bench.api.create(buildClaim(name, { requests, config, pods: [pod] }));
    return pod;
  }

  /** {@link createPod} and {@link runPod}. */
  async startPod(name: string, vfs: VfState | VfState[], config: ClaimConfig[]): Promise<RunningPod> {
    return await this.runPod(this.createPod(name, vfs, config));
  }

  /** Does all that the kubelet does until a pod runs, including retries. */
  async runPod(pod: Pod): Promise<RunningPod> {
    const sandbox = await this.bench.startPod(pod);
    return { pod, sandbox, container: await retry(() => this.bench.startContainer(sandbox, pod)) };
  }

  /**
   * The file of request `vf` of the claim of {@link createPod} on the host: what {@link readMetadata} reads through a mount,
   * but without a process in the container, which takes seconds.
   */
  async metadataOnHost({ pod }: RunningPod): Promise<MetadataDocument> {
    const claims = join(this.bench.settings.kubeletPluginsDir, testDriver, 'dra-device-metadata');
    return await readMetadataFile(join(claims, `default_${pod.metadata.name}`, 'vf/metadata.json'));
  }

  /** @returns the path of an empty folder that is removed with the node */
  createFolder(name: string): string {
    const path = join(this.#dir, name);
    mkdirSync(path);
    return path;
  }

  async [Symbol.asyncDispose]() {
    await this.bench[Symbol.asyncDispose]();
    await this.#driver?.stop();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

function writePolicy(path: string, policy: InventoryPolicy): void {
  writeFileSync(path, JSON.stringify({ apiVersion: 'netdra.dev/v1alpha1', kind: 'InventoryPolicy', ...policy }));
}

/** The name of a VF in the driver's slice. */
export function deviceName({ pciAddress }: VfState): string {
  return pciAddress.replaceAll(/[:.]/g, '-');
}

/** A container's file of a claim that was created by name. Default: the claim of {@link VmNode.createPod}. */
export async function readMetadata(
  { pod, container }: RunningPod,
  claim = pod.metadata.name,
  request = 'vf',
): Promise<MetadataDocument> {
  const root = '/var/run/kubernetes.io/dra-device-attributes/resourceclaims';
  const { stdout, stderr, exitCode } = await container.exec(
    'cat',
    `${root}/${claim}/${request}/${testDriver}-metadata.json`,
  );
  if (exitCode !== 0) throw new Error(`no metadata for ${claim}/${request}: ${stderr}`);
  return decodeStream(stdout);
}
