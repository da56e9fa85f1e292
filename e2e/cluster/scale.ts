/**
 * The cost of many nodes for a real control plane: slices published by the driver's own publisher, and by Kubernetes',
 * on nodes that kwok simulates; and pods with claims, placed by the scheduler. `npm run e2e:cluster -- --scale`,
 * followed by the options below. Prints tables in Markdown.
 *
 *   --nodes 100         number of nodes
 *   --vfs 64            per node, on two PFs
 *   --pods 500          with one claim each
 *   --rest-seconds 360  duration of the idle phase
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { describeMachine } from '../../test/bench/machine.ts';
import { renderMachine, renderTable } from '../../test/bench/render.ts';
import { goProgramsFolder } from '../go/build.ts';
import { readPrograms } from './programs.ts';
import { LargeCluster } from './scale/large-cluster.ts';
import { type Placing, placePods } from './scale/placing.ts';
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
      pods: { type: 'string', default: '500' },
      'rest-seconds': { type: 'string', default: '360' },
    },
  });
  const wrong = Object.entries(values).find(([, text]) => !/^[1-9]\d{0,4}$/.test(text));
  if (wrong !== undefined) {
    throw new NetdraError('wrong-usage', `--${wrong[0]} ${wrong[1]}: a number from 1 to 99999 is needed`);
  }
  const { nodes, vfs, pods, 'rest-seconds': restSeconds } = values;
  return { nodes: Number(nodes), vfs: Number(vfs), pods: Number(pods), restSeconds: Number(restSeconds) };
}

/** As the API server stores it. */
const timeAdded = '2026-01-01T00:00:00Z';

const number = (value: number, digits = 0) =>
  value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });

function formatOutcomes(played: readonly [side: string, outcomes: Outcome[]][], nodes: number): string {
  const head = [
    ...['', 'publisher', 'all written, s', 'reads of a node', 'writes', 'kB in', 'kB out', 'kB of events', 'refused'],
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
          ...[text, side, writtenMs === undefined ? '' : number(writtenMs / 1_000, 1)],
          ...[
            number(cost.reads / nodes, 1),
            number(cost.writes / nodes, 2),
            kB(cost.receivedBytes),
            kB(cost.sentBytes),
          ],
          ...[kB(cost.watchedBytes), number(cost.refused), number(cpuMs / nodes, 1)],
        ],
      ];
    }),
  );
  return renderTable(head, rows);
}

function formatPlacing({ pods, allMs, bindingMs, schedulerCpuMs, claims }: Placing): string {
  const seconds = (ms: number) => number(ms / 1_000, 2);
  return renderTable(
    [
      'pods',
      'all bound, s',
      'for each claim, ms',
      'creation to binding p50, s',
      'p99',
      'scheduler CPU for each, ms',
      'writes of claims for each',
    ],
    [
      [
        ...[number(pods), seconds(allMs), number(allMs / pods, 1), seconds(bindingMs.median), seconds(bindingMs.p99)],
        ...[number(schedulerCpuMs / pods, 1), number(claims.writes / pods, 1)],
      ],
    ],
  );
}

async function main(): Promise<void> {
  const options = readOptions();
  const programs = readPrograms(process.env);
  const progress = (line: string) => console.error(`scale: ${line}`);
  const all = await discoverVfs(options.vfs);
  const { nodes, vfs, pods, restSeconds } = options;
  const machine = renderMachine(describeMachine());
  console.log(`Kubernetes ${programs.kubernetesVersion}; ${nodes} nodes with ${vfs} VFs each; ${machine}.\n`);
  const played: [string, Outcome[]][] = [];
  for (const [side, { driver, command }] of Object.entries(sides)) {
    progress(`${side}: a cluster of ${nodes} nodes`);
    await using cluster = await LargeCluster.start(programs, program('kwok'), nodes);
    const devices = {
      all: cluster.writeDevices('all', all),
      left: cluster.writeDevices('left', all.slice(0, all.length / 2)),
      tainted: cluster.writeDevices(
        'tainted',
        all.map((device) => ({
          ...device,
          taints: [{ key: `${driver}/no-carrier`, effect: 'NoSchedule', timeAdded }],
        })),
      ),
    };
    const args = [...command.slice(1), cluster.controlPlane.adminKubeconfig, driver, ...cluster.nodes];
    await using publishers = new PublisherProcess([command[0], ...args]);
    played.push([side, await playPublishing({ cluster, publishers, devices, restSeconds, progress })]);
    // Printed each time: a long run may be interrupted.
    console.log(formatOutcomes(played.slice(-1), nodes));
    console.log(`${side}: ${number(publishers.residentMb)} MB for the publishers of all nodes`);
    if (side !== 'netdra') continue;
    progress(`${pods} pods`);
    console.log(`\n${formatPlacing(await placePods(cluster, driver, pods))}\n`);
  }
  console.log(`\n${formatOutcomes(played, nodes)}`);
}

try {
  await main();
} catch (error) {
  console.error(`scale: ${explain(error)}`);
  process.exitCode = 1;
}
