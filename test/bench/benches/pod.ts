import { execFileSync } from 'node:child_process';
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { TestNetns } from '../../doubles/netns.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { Lab, type LabPod, prepare, unprepare } from '../lab.ts';
import { type Counter, counted, type Reading } from '../ledger/counted.ts';
import { type BenchResult, type Row, row, type Table } from '../result.ts';
import { residentMb, type ShippedDriver } from '../shipped-driver.ts';
import { summarize } from '../stats.ts';

const repo = fileURLToPath(new URL('../../../', import.meta.url));

/** Removed files are freed a second later; reports that wait for a quiet moment are written. */
const afterwardsMs = 1_500;

/** In the order of a pod's life. The last one is what the driver does when nobody waits for it. */
const phases = [
  'prepare',
  'RunPodSandbox',
  'status',
  'CreateContainer',
  'StopPodSandbox',
  'unprepare',
  'afterwards',
] as const;
type Phase = (typeof phases)[number];
/** What one pod took. */
type Entry = Partial<Record<Counter | 'cpuMs', number>>;
type Ledger = Record<Phase, Entry[]>;

/** A program whose pods are counted. */
interface Side {
  imageDir: string;
  /** Options of Node.js; absent: those of our image. */
  engine?: readonly string[];
  /** Resident memory after the pods of each round, MB. */
  memoryMb: number[];
  /** By number of pods at once. */
  ledgers: Map<number, Ledger>;
}

interface Place {
  pod: LabPod;
  netns: TestNetns;
  sandbox: { id: string; name: string; namespace: string; uid: string; namespaces: { type: string; path: string }[] };
}

/** What the driver does for one pod with one VF, from phase to phase. */
export const podBench: Bench = {
  name: 'pod',
  async run(options) {
    const isFull = options.effort === 'full';
    const sizes = isFull ? [1, 30] : [1, 2];
    const rounds = isFull ? 4 : 1;
    await using stack = new AsyncDisposableStack();
    const ours: Side = { imageDir: options.imageDir, memoryMb: [], ledgers: new Map() };
    const sides = [ours];
    if (options.against !== undefined) {
      const built = await buildCommit(options.against, options.workDir, stack);
      sides.push({ ...built, memoryMb: [], ledgers: new Map() });
    }
    for (let round = 0; round < rounds; round++) {
      for (const [number, side] of sides.entries()) {
        options.progress(`pod: round ${round + 1} of ${rounds}${number === 0 ? '' : `, ${options.against}`}`);
        await countPods({ ...options, imageDir: side.imageDir }, sizes, side);
      }
    }
    return toResult(sizes, ours, sides[1], options.against);
  },
};

/** Starts the driver and counts pods, after some that do not count. */
async function countPods(options: BenchOptions, sizes: readonly number[], side: Side): Promise<void> {
  const { ledgers, engine } = side;
  const most = Math.max(...sizes);
  await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: most } });
  const driver = await lab.startDriver({}, { preload: join(repo, 'test/bench/ledger/preload.ts'), engine });
  const devices = await lab.devices();
  using stack = new DisposableStack();
  const namespaces = Array.from({ length: most }, (_, index) => stack.use(new TestNetns(`pod${index}`)));
  let started = 0;
  const life = async (count: number, ledger: Ledger) => {
    const places = namespaces.slice(0, count).map((netns, index): Place => {
      const parameters = { interfaceName: 'net1', addresses: [`192.0.2.${index + 1}/24`] };
      const pod = lab.addPod(`pod${started++}`, [[devices[index]!]], parameters);
      const namespaces = [{ type: 'network', path: netns.path }];
      return {
        pod,
        netns,
        sandbox: { id: `s${started}`, name: pod.name, namespace: 'default', uid: pod.uid, namespaces },
      };
    });
    await live(lab, driver, places, ledger);
  };
  await life(most, emptyLedger());
  for (const size of sizes) {
    const ledger = ledgers.get(size) ?? emptyLedger();
    ledgers.set(size, ledger);
    // Several that come alone, as one takes less than the clock of the processor can tell apart.
    for (let done = 0; done < (size === 1 ? 5 : 1); done++) await life(size, ledger);
  }
  side.memoryMb.push(residentMb(driver.pid));
}

/** The lives of pods that are started at once; each phase ends when all have passed it. */
async function live({ api, dra, runtime }: Lab, driver: ShippedDriver, places: Place[], ledger: Ledger): Promise<void> {
  const claims = places.flatMap(({ pod }) => pod.claims);
  const isReported = ({ namespace, name }: LabPod['claims'][number]) =>
    api
      .get<ResourceV1ResourceClaim>('ResourceClaim', name, namespace)
      ?.status?.devices?.every(({ networkData }) => networkData);
  const work: Record<Phase, (place: Place) => Promise<unknown>> = {
    prepare: ({ pod }) => prepare(dra, pod.claims),
    RunPodSandbox: ({ sandbox }) => runtime.runPodSandbox(sandbox),
    status: () => api.until(() => claims.every(isReported), 30_000),
    CreateContainer: ({ sandbox }) =>
      runtime.createContainer(sandbox, { id: `c-${sandbox.id}`, podSandboxId: sandbox.id, name: 'main' }),
    StopPodSandbox: async ({ sandbox }) => {
      await runtime.stopPodSandbox(sandbox);
      await runtime.removePodSandbox(sandbox);
    },
    unprepare: ({ pod }) => unprepare(dra, pod.claims),
    afterwards: () => sleep(afterwardsMs),
  };
  let before = await driver.ask<Reading>();
  for (const phase of phases) {
    await Promise.all(places.map(work[phase]));
    const after = await driver.ask<Reading>();
    ledger[phase].push(difference(before, after, places.length));
    before = after;
  }
  for (const { namespace, name } of claims) api.delete('ResourceClaim', name, namespace);
  for (const { pod } of places) api.delete('Pod', pod.name);
}

function difference(before: Reading, after: Reading, pods: number): Entry {
  const entry: Entry = { cpuMs: (after.cpuMs - before.cpuMs) / pods };
  for (const name of counters) entry[name] = (after.counts[name] - before.counts[name]) / pods;
  return entry;
}

/** Makes the program of another commit, in a work tree of its own. @returns the image's folder, and its options of Node.js */
async function buildCommit(
  commit: string,
  workDir: string,
  stack: AsyncDisposableStack,
): Promise<Required<Pick<Side, 'imageDir' | 'engine'>>> {
  const [tree, imageDir] = [join(workDir, 'against'), join(workDir, 'against-image')];
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', repo, ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
  git('worktree', 'add', '--detach', tree, commit);
  stack.defer(() => void git('worktree', 'remove', '--force', tree));
  symlinkSync(join(repo, 'node_modules'), join(tree, 'node_modules'));
  const make = `import { makeShippedDriver } from './test/bench/shipped-driver.ts'; await makeShippedDriver(process.argv[1]);`;
  const args = ['--input-type=module', '-e', make, imageDir];
  execFileSync(process.execPath, args, { cwd: tree, stdio: ['ignore', 'ignore', 'inherit'] });
  const { nodeFlags } = (await import(join(tree, 'deploy/image/layout.ts'))) as { nodeFlags: readonly string[] };
  return { imageDir, engine: nodeFlags };
}

const counters = Object.keys(counted) as Counter[];

function emptyLedger(): Ledger {
  const ledger = {} as Ledger;
  for (const phase of phases) ledger[phase] = [];
  return ledger;
}

function toResult(sizes: readonly number[], ours: Side, other: Side | undefined, against = ''): BenchResult {
  const memory = other && { what: against, ...summarize(other.memoryMb) };
  const rows: Row[] = [row('memory after these pods', 'MB', summarize(ours.memoryMb), memory)];
  const tables: Table[] = [];
  for (const size of sizes) {
    const [ledger, reference] = [ours.ledgers.get(size)!, other?.ledgers.get(size)];
    const title = size === 1 ? 'one pod' : `${size} pods at once`;
    for (const phase of columns) {
      const compared = reference && { what: against, ...summarize(valuesOf(reference, 'cpuMs', phase)) };
      rows.push(row(`${title}: ${phase}`, 'ms', summarize(valuesOf(ledger, 'cpuMs', phase)), compared));
    }
    const cell = (name: Counter, phase: Column) => {
      const [count, before] = [ledger, reference].map((each) => each && median(valuesOf(each, name, phase)));
      return before === undefined || before === count ? `${count}` : `${count} (${before})`;
    };
    const lines = counters.map((name) => [counted[name], ...columns.map((phase) => cell(name, phase))]);
    tables.push({
      head: [title, ...columns],
      lines: lines.filter((cells) => cells.slice(1).some((each) => each !== '0')),
    });
  }
  const compared = other === undefined ? '' : ` In parentheses: ${against}, where it differs.`;
  return {
    name: 'pod',
    about: `What the driver does for one pod with one VF: CPU time of all its threads, and below what its code asks of the kernel, SQLite and the API server, counted where it leaves the program.${compared} RunPodSandbox includes the metadata and the gate, "status" is what is left until the claim shows the interface, and "afterwards" are the 1.5 s after unprepare.`,
    rows,
    bounds: [],
    tables,
  };
}

const columns = [...phases, 'all'] as const;
type Column = (typeof columns)[number];

/** Of each pod, or of each batch for one pod of it. */
function valuesOf(ledger: Ledger, what: Counter | 'cpuMs', column: Column): number[] {
  const chosen: readonly Phase[] = column === 'all' ? phases : [column];
  return ledger.prepare.map((_, index) => chosen.reduce((sum, each) => sum + (ledger[each][index]?.[what] ?? 0), 0));
}

function median(values: readonly number[]): number {
  return Number(summarize(values).median.toFixed(1));
}
