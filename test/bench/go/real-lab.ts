import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { ApiCluster } from '../../../e2e/cluster/api/api-cluster.ts';
import { apiServerAddress } from '../../../e2e/cluster/control-plane.ts';
import { readPrograms } from '../../../e2e/cluster/programs.ts';
import { type FakeRuntime, startFakeRuntime } from '../../../nri/testing.ts';
import { Kubelet } from '../../doubles/kubelet.ts';
import type { DraClient, WireClaim } from '../../doubles/kubelet-dra-client.ts';
import { buildClaim, buildPod, type Identified, testDriver, testNode } from '../../doubles/objects.ts';
import type { BenchOptions } from '../bench.ts';
import { type LabPod, labSettings, serviceEnv, writeServiceAccount } from '../lab.ts';
import { ShippedDriver } from '../shipped-driver.ts';
import { goDriverArgs, goDriverName } from './programs.ts';

/** The measured programs. */
export const sides = ['netdra', 'go'] as const;
export type Side = (typeof sides)[number];

export function bothSides<T>(of: (side: Side) => T): Record<Side, T> {
  return { netdra: of('netdra'), go: of('go') };
}

const vfsOfPf = 128;
/** The class has no configuration, so that allocations need not repeat any: the driver compares the two. */
const deviceClassName = 'bench';
const goDevices = 512;

/**
 * The driver and its Go counterparts, with a real etcd and a real API server, which authorizes both like
 * an installed driver. The kubelet and the two runtimes are doubles in this process, so that a single call can be
 * timed.
 */
export class RealLab implements AsyncDisposable {
  readonly pids: Record<Side | 'plugin', number>;
  readonly runtimes: Record<Side, FakeRuntime>;
  readonly #api: ApiCluster;
  readonly #kubelet: Kubelet;
  readonly #stack: AsyncDisposableStack;
  #pods = 0;

  private constructor(
    parts: Pick<RealLab, 'pids' | 'runtimes'> & { api: ApiCluster; kubelet: Kubelet },
    stack: AsyncDisposableStack,
  ) {
    this.pids = parts.pids;
    this.runtimes = parts.runtimes;
    this.#api = parts.api;
    this.#kubelet = parts.kubelet;
    this.#stack = stack;
  }

  /** @param vfs number of the driver's VFs, a multiple of 128 from there on @throws NetdraError `programs-missing` */
  static async start({ imageDir, workDir }: BenchOptions, vfs: number): Promise<RealLab> {
    await using stack = new AsyncDisposableStack();
    const programs = readPrograms(process.env);
    const disk = mkdtempSync(join(workDir, 'real-'));
    const memory = mkdtempSync(join(tmpdir(), 'netdra-real-'));
    stack.defer(() => rmSync(memory, { recursive: true, force: true }));
    const [registryDir, cdiDir, pluginsDir] = [join(memory, 'registry'), join(memory, 'cdi'), join(disk, 'p')];
    for (const dir of [registryDir, cdiDir, pluginsDir, join(pluginsDir, goDriverName)]) mkdirSync(dir);
    const api = stack.use(await ApiCluster.start());
    await api.create({
      apiVersion: 'resource.k8s.io/v1',
      kind: 'DeviceClass',
      metadata: { name: deviceClassName },
      spec: {},
    });
    writeServiceAccount({ certificate: api.certificateAuthority, token: await api.driverToken(testNode) });
    const env = serviceEnv(443, apiServerAddress);
    // The benches know the claims and pass them directly.
    const getClaim = () => Promise.reject(new Error('the kubelet double is not asked for claims here'));
    const kubelet = stack.use(await Kubelet.start({ registryDir, getClaim }));
    const sockets = { netdra: join(memory, 'nri.sock'), go: join(memory, 'go.sock') };
    const [ours, theirs] = [
      stack.use(await startFakeRuntime({ socketPath: sockets.netdra })),
      stack.use(await startFakeRuntime({ socketPath: sockets.go })),
    ];

    const simulate = { pfs: Math.ceil(vfs / vfsOfPf), vfsPerPf: Math.min(vfs, vfsOfPf) };
    const dirs = { registryDir, pluginsDir, cdiDir };
    const settings = { ...labSettings({ ...dirs, nriSocket: sockets.netdra, simulate }), podUid: randomUUID() };
    const driver = stack.use(new ShippedDriver(imageDir, settings, { logPath: join(disk, 'driver.log'), env }));
    const start = (program: string, args: string[]) =>
      stack.use(new GoProgram(program, args, { log: join(disk, 'go.log'), env }));
    const goArgs = goDriverArgs({ ...dirs, nodeName: testNode, devices: goDevices });
    const goDriver = start(join(programs.kubernetes, 'test-driver'), goArgs);
    const plugin = start(programs.nriPlugin, [sockets.go, 'go', '20']);
    await Promise.all([
      ...[testDriver, goDriverName].map((name) => kubelet.waitForDriver(name, 60_000)),
      ours.waitForPlugin(settings.nriPluginName),
      theirs.waitForPlugin('go'),
    ]);
    const pids = { netdra: driver.pid, go: goDriver.pid, plugin: plugin.pid };
    return new RealLab({ pids, runtimes: { netdra: ours, go: theirs }, api, kubelet }, stack.move());
  }

  dra(side: Side): DraClient {
    return this.#kubelet.client(side === 'netdra' ? testDriver : goDriverName);
  }

  /** Names of the driver's devices, once it has published this many. */
  async devices(count: number): Promise<string[]> {
    for (const endsAt = performance.now() + 120_000; ; ) {
      const path = '/apis/resource.k8s.io/v1/resourceslices';
      const { items } = await this.#api.admin.client.request<{
        items: { spec: { driver: string; devices?: { name: string }[] } }[];
      }>({ method: 'GET', path });
      const ours = items.filter(({ spec }) => spec.driver === testDriver);
      const names = ours.flatMap(({ spec }) => (spec.devices ?? []).map(({ name }) => name));
      if (names.length >= count) return names;
      if (performance.now() > endsAt) throw new Error(`the driver has published ${names.length} devices of ${count}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  /** A pod, with its claims of one request each as stored by the API server. @param devices of each claim */
  async addPod(side: Side, devices: string[][], parameters: object): Promise<LabPod> {
    const name = `${side}-${this.#pods++}`;
    const names = devices.map((_, index) => `${name}-${index}`);
    const pod = buildPod(name, { resourceClaims: names.map((claim) => ({ name: claim, resourceClaimName: claim })) });
    const ours = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...parameters };
    const of = side === 'netdra' ? { driver: testDriver, parameters: ours } : { driver: goDriverName, parameters };
    const claims: WireClaim[] = [];
    for (const [index, claimName] of names.entries()) {
      const claim: Identified<ResourceV1ResourceClaim> = buildClaim(claimName, {
        driver: of.driver,
        requests: [{ name: 'vf', deviceClassName, devices: devices[index] ?? [] }],
        config: [{ source: 'FromClaim', parameters: of.parameters }],
        pods: [pod],
      });
      const { metadata } = await this.#api.createClaim(claim);
      claims.push({ namespace: metadata.namespace, name: metadata.name, uid: metadata.uid });
    }
    return { uid: pod.metadata.uid, name, claims };
  }

  async [Symbol.asyncDispose]() {
    await this.#stack.disposeAsync();
  }
}

/** A daemon; its output goes to a file. */
class GoProgram implements AsyncDisposable {
  readonly pid: number;
  readonly #exit: Promise<unknown>;

  /** @throws Error if the program does not exist */
  constructor(program: string, args: string[], options: { log: string; env: Record<string, string> }) {
    const log = openSync(options.log, 'a');
    const child = spawn(program, args, { stdio: ['ignore', log, log], env: { ...process.env, ...options.env } });
    closeSync(log);
    if (child.pid === undefined) throw new Error(`${program} was not started`);
    this.pid = child.pid;
    this.#exit = once(child, 'exit');
  }

  async [Symbol.asyncDispose]() {
    try {
      process.kill(this.pid);
    } catch (error) {
      // It has already exited.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    await this.#exit;
  }
}
