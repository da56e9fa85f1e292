import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import { pino } from 'pino';
import { systemClock } from '../../src/clock.ts';
import { decodeStream } from '../../src/metadata/index.ts';
import { buildClaim, buildPod, testDriver } from '../../test/doubles/objects.ts';
import { Bench } from './bench.ts';
import { DriverProcess } from './driver-process.ts';
import type { Sandbox } from './pod.ts';

/**
 * Pods come and go while the driver and containerd are restarted at random:
 * `node e2e/node/churn.ts [--pods 200] [--rounds 3] [--vfs 64] [--parallel 16] [--restarts 6] [--seed N]`.
 * Exits with 1 if a container ran without its metadata, anything is left behind, or memory grew.
 */
const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '200' },
    rounds: { type: 'string', default: '3' },
    vfs: { type: 'string', default: '64' },
    parallel: { type: 'string', default: '16' },
    /** In each round. */
    restarts: { type: 'string', default: '6' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
});
const pods = Number(values.pods);
const rounds = Number(values.rounds);
const vfs = Number(values.vfs);
const parallel = Number(values.parallel);
const restarts = Number(values.restarts);

/** What the kubelet would do for hours is given up after this. */
const patienceMs = 90_000;
const memoryGrowth = 1.2;

/** Repeatable as far as the machine lets it: Mulberry32. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const random = createRandom(Number(values.seed));
const problems: string[] = [];

function report(problem: string): void {
  problems.push(problem);
  console.log(`PROBLEM ${problem}`);
}

/** Again and again, with a pause, as the kubelet does it. */
async function patiently<T>(what: string, task: () => Promise<T>): Promise<T> {
  for (const endsAt = performance.now() + patienceMs; ; await systemClock.sleep(200 + 300 * random())) {
    try {
      return await task();
    } catch (cause) {
      if (performance.now() > endsAt) throw new Error(`${what} never succeeded`, { cause });
    }
  }
}

class Churn {
  readonly #bench: Bench;
  readonly #free: string[] = [];
  #driver: DriverProcess | undefined;
  #served = 0;

  constructor(bench: Bench) {
    this.#bench = bench;
  }

  async startDriver(): Promise<void> {
    this.#driver = new DriverProcess(this.#bench.settings);
    await this.#bench.kubelet.waitForDriver(testDriver, 30_000);
  }

  async restartDriver(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    await this.#driver?.stop(signal);
    await systemClock.sleep(1_000 * random());
    await this.startDriver();
  }

  /** Takes over what the driver offers. */
  async discover(): Promise<void> {
    const offered = () =>
      this.#bench.api
        .objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice')
        .flatMap(({ spec }) => spec.devices.map(({ name }) => name));
    while (offered().length < vfs) await systemClock.sleep(50);
    this.#free.push(...offered());
  }

  async round(number: number): Promise<void> {
    const startedAt = performance.now();
    this.#served = 0;
    const queue = Array.from({ length: pods }, (_, index) => `pod-${number}-${index}`);
    const work = Promise.all(Array.from({ length: parallel }, () => this.#work(queue)));
    await Promise.all([work, this.#disturb()]);
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
    console.log(`round ${number}: ${this.#served} pods in ${seconds} s, driver at ${this.rssMb()} MB`);
  }

  rssMb(): number {
    const status = readFileSync(`/proc/${this.#driver?.pid}/status`, 'utf8');
    return Math.round(Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) / 1_024);
  }

  async #work(queue: string[]): Promise<void> {
    for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
      const device = this.#free.splice(Math.floor(random() * this.#free.length), 1)[0];
      if (device === undefined) throw new Error('more pods at a time than VFs');
      try {
        await this.#live(name, device);
        this.#served += 1;
      } catch (error) {
        const { message, cause } = error as Error;
        report(`${name}: ${message}: ${cause instanceof Error ? cause.message : ''}`);
      }
      this.#free.push(device);
    }
  }

  /** The life of one pod, from prepare to unprepare. */
  async #live(name: string, device: string): Promise<void> {
    const bench = this.#bench;
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const address = `198.18.${Math.floor(random() * 256)}.${1 + Math.floor(random() * 254)}/16`;
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      addresses: [address],
    };
    const config = [{ source: 'FromClaim' as const, parameters }];
    bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
    try {
      await patiently('prepare', () => bench.prepare(pod));
      const sandbox = await patiently('the sandbox', () => bench.runSandbox(pod));
      await this.#checkContainer(pod, sandbox, address);
      await systemClock.sleep(300 * random());
    } finally {
      await patiently('the end of the sandbox', () => bench.endSandboxes(pod));
      await patiently('unprepare', () => bench.endPod(pod));
      bench.api.delete('ResourceClaim', name, pod.metadata.namespace);
    }
  }

  async #checkContainer(pod: ReturnType<typeof buildPod>, sandbox: Sandbox, address: string): Promise<void> {
    const { name } = pod.metadata;
    const path = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${name}/vf/${testDriver}-metadata.json`;
    const container = await patiently('the container', () => this.#bench.startContainer(sandbox, pod));
    const { stdout, exitCode } = await patiently('a look into the container', () => container.exec('cat', path));
    if (exitCode !== 0) return report(`${name}: a container without metadata`);
    const { generation, devices } = decodeStream(stdout);
    const ips = devices.flatMap(({ networkData }) => networkData?.ips ?? []);
    if (generation < 1 || !ips.includes(address))
      report(`${name}: generation ${generation} tells ${ips}, not ${address}`);
  }

  /** Restarts at random, one after the other; those of the driver end before the round does. */
  async #disturb(): Promise<void> {
    for (let count = 0; count < restarts; count++) {
      await systemClock.sleep(500 + 2_500 * random());
      const signal = random() < 0.5 ? 'SIGKILL' : 'SIGTERM';
      if (random() < 0.5) await this.restartDriver(signal);
      else await this.#bench.containerd.restart(signal);
    }
  }

  async checkClean(): Promise<void> {
    const bench = this.#bench;
    // What was refused at its stop is given back by unprepare, and links come back a moment later.
    for (const endsAt = performance.now() + 5_000; bench.hostVfs().length < vfs && performance.now() < endsAt; ) {
      await systemClock.sleep(100);
    }
    if (bench.hostVfs().length !== vfs) report(`${vfs - bench.hostVfs().length} VFs are lost`);
    if (bench.claimFiles().length > 0) report(`files are left: ${bench.claimFiles().join(' ')}`);
    using database = new DatabaseSync(join(bench.settings.kubeletPluginsDir, testDriver, 'state.db'));
    const rows = Number(database.prepare('SELECT count(*) AS claims FROM claims').get()?.claims);
    if (rows > 0) report(`${rows} claims are left in the store`);
    const descriptors = readdirSync(`/proc/${this.#driver?.pid}/fd`).length;
    if (descriptors > 60) report(`the driver has ${descriptors} descriptors open`);
    const netns = execFileSync('lsns', ['--type', 'net', '--noheadings', '--output', 'NS'])
      .toString()
      .trim()
      .split('\n');
    console.log(
      `left: 0 = ${problems.length} problems; ${netns.length} network namespaces, ${descriptors} descriptors`,
    );
  }

  async stop(): Promise<void> {
    await this.#driver?.stop();
  }
}

async function main(): Promise<void> {
  console.log(
    `seed ${values.seed}: ${pods} pods x ${rounds} rounds, ${vfs} VFs, ${parallel} at a time, ${restarts} restarts`,
  );
  const settings = { simulate: { pfs: Math.ceil(vfs / 64), vfsPerPf: Math.min(vfs, 64) } };
  await using bench = await Bench.start({ version: '2.1', logger: pino({ level: 'silent' }), settings });
  const churn = new Churn(bench);
  await churn.startDriver();
  await churn.discover();
  const memory: number[] = [];
  for (let number = 1; number <= rounds; number++) {
    await churn.round(number);
    await churn.checkClean();
    memory.push(churn.rssMb());
  }
  const [first = 0] = memory;
  if (memory.at(-1)! > first * memoryGrowth) report(`memory grew from ${first} to ${memory.at(-1)} MB`);
  await bench.endAllPods();
  await churn.stop();
  console.log(problems.length === 0 ? 'nothing lost' : `${problems.length} problems`);
  if (problems.length > 0) process.exitCode = 1;
}

await main();
