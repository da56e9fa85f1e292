import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pino } from 'pino';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import type { DriverProcess } from '../driver-process.ts';
import type { Sandbox } from '../pod.ts';

export interface ChurnOptions {
  /** Number in each round. */
  pods: number;
  rounds: number;
  vfs: number;
  /** Maximum number of concurrent pods. */
  parallel: number;
  /** Restarts of driver or containerd in each round. */
  restarts: number;
  seed: number;
  /** Receives a line about each round, and each problem as soon as it is seen. */
  report: (line: string) => void;
}

/** Limit for retries, which the kubelet would continue for hours. */
const patienceMs = 90_000;
const memoryGrowth = 1.2;

/** Reproducible as far as timing allows: Mulberry32. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Churn {
  readonly problems: string[] = [];
  readonly #bench: Bench;
  readonly #options: ChurnOptions;
  readonly #random: () => number;
  readonly #free: string[] = [];
  #driver: DriverProcess | undefined;
  #served = 0;
  #netnsBefore = 0;

  constructor(bench: Bench, options: ChurnOptions) {
    this.#bench = bench;
    this.#options = options;
    this.#random = createRandom(options.seed);
  }

  report(problem: string): void {
    this.problems.push(problem);
    this.#options.report(`PROBLEM ${problem}`);
  }

  async startDriver(): Promise<void> {
    this.#driver = await this.#bench.startProcess();
  }

  async restartDriver(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    await this.#driver?.stop(signal);
    await systemClock.sleep(1_000 * this.#random());
    await this.startDriver();
  }

  /** Reads the devices that the driver offers. */
  async discover(): Promise<void> {
    const offered = () =>
      this.#bench.api
        .objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice')
        .flatMap(({ spec }) => spec.devices.map(({ name }) => name));
    while (offered().length < this.#options.vfs) await systemClock.sleep(50);
    this.#free.push(...offered());
    this.#netnsBefore = countNetns();
  }

  async round(number: number): Promise<void> {
    const { pods, parallel } = this.#options;
    const startedAt = performance.now();
    this.#served = 0;
    const queue = Array.from({ length: pods }, (_, index) => `pod-${number}-${index}`);
    const work = Promise.all(Array.from({ length: parallel }, () => this.#work(queue)));
    await Promise.all([work, this.#disturb()]);
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
    this.#options.report(`round ${number}: ${this.#served} pods in ${seconds} s, driver at ${this.rssMb()} MB`);
  }

  rssMb(): number {
    const status = readFileSync(`/proc/${this.#driver?.pid}/status`, 'utf8');
    return Math.round(Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) / 1_024);
  }

  async #work(queue: string[]): Promise<void> {
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
      const device = this.#free.splice(Math.floor(this.#random() * this.#free.length), 1)[0];
      if (device === undefined) throw new Error('more pods at a time than VFs');
      try {
        await this.#live(name, device);
        this.#served += 1;
      } catch (error) {
        const { message, cause } = error as Error;
        this.report(`${name}: ${message}: ${cause instanceof Error ? cause.message : ''}`);
      }
      this.#free.push(device);
    }
  }

  /** The life of one pod, from prepare to unprepare. */
  async #live(name: string, device: string): Promise<void> {
    const bench = this.#bench;
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const address = `198.18.${Math.floor(this.#random() * 256)}.${1 + Math.floor(this.#random() * 254)}/16`;
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      addresses: [address],
    };
    const config = [{ source: 'FromClaim' as const, parameters }];
    bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
    try {
      await this.#patiently('prepare', () => bench.prepare(pod));
      const sandbox = await this.#patiently('the sandbox', () => bench.runSandbox(pod));
      await this.#checkContainer(pod, sandbox, address);
      await systemClock.sleep(300 * this.#random());
    } finally {
      await this.#patiently('the end of the sandbox', () => bench.endSandboxes(pod));
      await this.#patiently('unprepare', () => bench.endPod(pod));
      bench.api.delete('ResourceClaim', name, pod.metadata.namespace);
    }
  }

  async #checkContainer(pod: ReturnType<typeof buildPod>, sandbox: Sandbox, address: string): Promise<void> {
    const { name } = pod.metadata;
    const path = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${name}/vf/${testDriver}-metadata.json`;
    const container = await this.#patiently('the container', () => this.#bench.startContainer(sandbox, pod));
    const { stdout, exitCode } = await this.#patiently('a look into the container', () => container.exec('cat', path));
    if (exitCode !== 0) return this.report(`${name}: a container without metadata`);
    const { generation, devices } = decodeStream(stdout);
    const ips = devices.flatMap(({ networkData }) => networkData?.ips ?? []);
    if (generation < 1 || !ips.includes(address))
      this.report(`${name}: generation ${generation} tells ${ips}, not ${address}`);
  }

  /** Retries with pauses, like the kubelet. */
  async #patiently<T>(what: string, task: () => Promise<T>): Promise<T> {
    for (const endsAt = performance.now() + patienceMs; ; await systemClock.sleep(200 + 300 * this.#random())) {
      try {
        return await task();
      } catch (cause) {
        if (performance.now() > endsAt) throw new Error(`${what} never succeeded`, { cause });
      }
    }
  }

  /** Random restarts, one after the other; those of the driver are complete before the round ends. */
  async #disturb(): Promise<void> {
    for (let count = 0; count < this.#options.restarts; count++) {
      await systemClock.sleep(500 + 2_500 * this.#random());
      const signal = this.#random() < 0.5 ? 'SIGKILL' : 'SIGTERM';
      if (this.#random() < 0.5) await this.restartDriver(signal);
      else await this.#bench.containerd.restart(signal);
    }
  }

  async checkClean(): Promise<void> {
    const bench = this.#bench;
    const { vfs } = this.#options;
    // Unprepare finishes what failed in the stop hook, and links come back a moment later.
    for (const endsAt = performance.now() + 5_000; bench.hostVfs().length < vfs && performance.now() < endsAt; ) {
      await systemClock.sleep(100);
    }
    if (bench.hostVfs().length !== vfs) this.report(`${vfs - bench.hostVfs().length} VFs are lost`);
    if (bench.claimFiles().length > 0) this.report(`files are left: ${bench.claimFiles().join(' ')}`);
    using database = new DatabaseSync(join(bench.settings.kubeletPluginsDir, testDriver, 'state.db'));
    const rows = Number(database.prepare('SELECT count(*) AS claims FROM claims').get()?.claims);
    if (rows > 0) this.report(`${rows} claims are left in the store`);
    const descriptors = readdirSync(`/proc/${this.#driver?.pid}/fd`).length;
    if (descriptors > 60) this.report(`the driver has ${descriptors} descriptors open`);
    // The kernel tears an unused namespace down in the background.
    const namespaces = await settled(() => countNetns() - this.#netnsBefore);
    if (namespaces > 0) this.report(`${namespaces} network namespaces are left`);
    this.#options.report(`${this.problems.length} problems so far; the driver has ${descriptors} descriptors open`);
  }

  async stop(): Promise<void> {
    await this.#driver?.stop();
  }
}

/** All namespaces of the node, including those kept only by a mount. */
function countNetns(): number {
  const table = execFileSync('lsns', ['--type', 'net', '--noheadings', '--output', 'NS']).toString();
  return table.trim().split('\n').length;
}

/** A count that should drop to 0 by itself, or the value at which it stays. */
async function settled(count: () => number): Promise<number> {
  for (
    const endsAt = performance.now() + 5_000;
    count() > 0 && performance.now() < endsAt;
    await systemClock.sleep(100)
  );
  return count();
}

/**
 * Creates and deletes pods while the driver and containerd are restarted at random.
 * @returns the problems: a container that ran without its metadata, left-overs, memory growth
 */
export async function runChurn(options: ChurnOptions): Promise<string[]> {
  const { vfs, rounds } = options;
  const settings = { simulate: { pfs: Math.ceil(vfs / 64), vfsPerPf: Math.min(vfs, 64) } };
  await using bench = await Bench.start({ version: '2.1', logger: pino({ level: 'silent' }), settings });
  const churn = new Churn(bench, options);
  await churn.startDriver();
  await churn.discover();
  const memory: number[] = [];
  for (let number = 1; number <= rounds; number++) {
    await churn.round(number);
    await churn.checkClean();
    memory.push(churn.rssMb());
  }
  const [first = 0] = memory;
  if (memory.at(-1)! > first * memoryGrowth) churn.report(`memory grew from ${first} to ${memory.at(-1)} MB`);
  await bench.endAllPods();
  await churn.stop();
  return churn.problems;
}
