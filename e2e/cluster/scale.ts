/**
 * The cost of many nodes for a real control plane: slices published by the driver's own publisher, and by Kubernetes'.
 * `npm run e2e:cluster -- --scale`, followed by the options below. Prints tables in Markdown.
 *
 *   --nodes 100         number of nodes
 *   --vfs 64            per node, on two PFs
 *   --rest-seconds 360  duration of the idle phase
 *   --classes 200       in place of all that: what admission costs for this many DeviceClasses
 *   --pool-pods 500     in place of all that: what addresses of a pool cost for a pod on each of this many nodes
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { describeMachine } from '../../test/bench/machine.ts';
import { renderMachine, renderTable } from '../../test/bench/render.ts';
import { goProgramsFolder } from '../go/build.ts';
import { type ClusterPrograms, readPrograms } from './programs.ts';
import { measureAddresses } from './scale/addresses.ts';
import { measureAdmission } from './scale/admission.ts';
import { LargeCluster } from './scale/large-cluster.ts';
import { PublisherProcess } from './scale/publisher-process.ts';
import { type Outcome, playPublishing, scenarios } from './scale/publishing.ts';
import { discoverVfs } from './scale/vfs.ts';

const program = (module: string) => join(goProgramsFolder(cacheFolder(process.env), module), module);
const ourProgram = join(import.meta.dirname, 'scale/publish.ts');
/** Each side has its own driver name. */
const sides = {
  netdra: { driver: 'sriov.netdra.dev', command: [process.execPath, ourProgram] },
  "Kubernetes' own": { driver: 'go.netdra.dev', command: [program('slice-publisher')] },
} as const;

function readOptions() {
  const { values } = parseArgs({
    options: {
      nodes: { type: 'string', default: '100' },
      vfs: { type: 'string', default: '64' },
      'rest-seconds': { type: 'string', default: '360' },
      classes: { type: 'string' },
      'pool-pods': { type: 'string' },
    },
  });
  const wrong = Object.entries(values).find(([, text]) => !/^[1-9]\d{0,4}$/.test(text));
  if (wrong !== undefined) {
    throw new NetdraError('wrong-usage', `--${wrong[0]} ${wrong[1]}: a number from 1 to 99999 is needed`);
  }
  const { nodes, vfs, 'rest-seconds': restSeconds, classes = 0, 'pool-pods': poolPods = 0 } = values;
  return {
    nodes: Number(nodes),
    vfs: Number(vfs),
    restSeconds: Number(restSeconds),
    classes: Number(classes),
    poolPods: Number(poolPods),
  };
}

const number = (value: number, digits = 0) =>
  value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });

function formatOutcomes(played: readonly [side: string, outcomes: Outcome[]][], nodes: number): string {
  const head = [
    '',
    'publisher',
    'all written, s',
    'reads of a node',
    'writes',
    'kB in',
    'kB out',
    'kB of events',
    'refused',
    'CPU of a node, ms',
  ];
  const kB = (bytes: number) => number(bytes / nodes / 1_000, 1);
  const rows = Object.entries(scenarios).flatMap(([name, text]) =>
    played.flatMap(([side, outcomes]) => {
      const outcome = outcomes.find(({ scenario }) => scenario === name);
      if (outcome === undefined) return [];
      const { cost, writtenMs, cpuMs } = outcome;
      return [
        [
          text,
          side,
          writtenMs === undefined ? '' : number(writtenMs / 1_000, 1),
          number(cost.reads / nodes, 1),
          number(cost.writes / nodes, 2),
          kB(cost.receivedBytes),
          kB(cost.sentBytes),
          kB(cost.watchedBytes),
          number(cost.refused),
          number(cpuMs / nodes, 1),
        ],
      ];
    }),
  );
  return renderTable(head, rows);
}

interface Run extends ReturnType<typeof readOptions> {
  programs: ClusterPrograms;
  progress: (line: string) => void;
}

/** A cluster, with the publishers of one side on its nodes. */
async function openSide({ programs, nodes, progress }: Run, side: keyof typeof sides) {
  await using stack = new AsyncDisposableStack();
  const { driver, command } = sides[side];
  progress(`${side}: a cluster of ${nodes} nodes`);
  const cluster = stack.use(await LargeCluster.start(programs, nodes));
  const args = [...command.slice(1), cluster.controlPlane.adminKubeconfig, driver, ...cluster.nodes];
  const publishers = stack.use(new PublisherProcess([command[0], ...args]));
  const owned = stack.move();
  return { cluster, publishers, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

async function measureSlices(run: Run): Promise<void> {
  const all = await discoverVfs(run.vfs);
  const played: [string, Outcome[]][] = [];
  for (const side of Object.keys(sides) as (keyof typeof sides)[]) {
    await using opened = await openSide(run, side);
    const { cluster, publishers } = opened;
    const devices = {
      all: cluster.writeFile('all', all),
      left: cluster.writeFile('left', all.slice(0, all.length / 2)),
    };
    played.push([side, await playPublishing({ ...run, cluster, publishers }, devices)]);
    // Printed each time: a long run may be interrupted.
    console.log(formatOutcomes(played.slice(-1), run.nodes));
    console.log(`${side}: ${number(publishers.residentMb)} MB for the publishers of all nodes`);
  }
  console.log(`\n${formatOutcomes(played, run.nodes)}`);
}

async function main(): Promise<void> {
  const programs = readPrograms(process.env);
  const run = { ...readOptions(), programs, progress: (line: string) => console.error(`scale: ${line}`) };
  const machine = renderMachine(describeMachine());
  if (run.classes + run.poolPods > 0) {
    console.log(`Kubernetes ${programs.kubernetesVersion}; ${machine}.\n`);
    if (run.classes > 0) console.log(await measureAdmission(run.classes));
    if (run.poolPods > 0) console.log(await measureAddresses(run.poolPods, run.progress));
    return;
  }
  console.log(`Kubernetes ${programs.kubernetesVersion}; ${run.nodes} nodes with ${run.vfs} VFs each; ${machine}.\n`);
  await measureSlices(run);
}

try {
  await main();
} catch (error) {
  console.error(`scale: ${explain(error)}`);
  process.exitCode = 1;
}
