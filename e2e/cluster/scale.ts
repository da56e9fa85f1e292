/**
 * The cost of many nodes for a real control plane: slices published by the driver's own publisher, and by Kubernetes',
 * on nodes that kwok simulates; NodeNetworkDevices, written by the driver's own writer; and pods with claims, placed by the
 * scheduler. `npm run e2e:cluster -- --scale`, followed by the options below. Prints tables in Markdown.
 *
 *   --nodes 100         number of nodes
 *   --vfs 64            per node, on two PFs
 *   --pods 500          with one claim each
 *   --rest-seconds 360  duration of the idle phase
 *   --only nodes        NodeNetworkDevices only; --only policies: NetworkDevicePolicies only
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { KubernetesObject } from '@kubernetes/client-node';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { describeMachine } from '../../test/bench/machine.ts';
import { renderMachine, renderTable } from '../../test/bench/render.ts';
import { findObject } from '../../test/unit/deploy/manifest-objects.ts';
import { goProgramsFolder } from '../go/build.ts';
import { parseObjects } from '../release/chart.ts';
import { type ClusterPrograms, readPrograms } from './programs.ts';
import { LargeCluster } from './scale/large-cluster.ts';
import { type Placing, placePods } from './scale/placing.ts';
import { PublisherProcess } from './scale/publisher-process.ts';
import { type Outcome, playPolicies, playPublishing, playViews, scenarios } from './scale/publishing.ts';
import { discoverVfs } from './scale/vfs.ts';
import { readViews } from './scale/views.ts';

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
      only: { type: 'string' },
    },
  });
  const { only, ...numbers } = values;
  if (only !== undefined && only !== 'nodes' && only !== 'policies')
    throw new NetdraError('wrong-usage', `--only ${only}: nodes and policies are known only`);
  const wrong = Object.entries(numbers).find(([, text]) => !/^[1-9]\d{0,4}$/.test(text));
  if (wrong !== undefined) {
    throw new NetdraError('wrong-usage', `--${wrong[0]} ${wrong[1]}: a number from 1 to 99999 is needed`);
  }
  const { nodes, vfs, pods, 'rest-seconds': restSeconds } = numbers;
  return { nodes: Number(nodes), vfs: Number(vfs), pods: Number(pods), restSeconds: Number(restSeconds), only };
}

const definitionsPath = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

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

interface Run extends ReturnType<typeof readOptions> {
  programs: ClusterPrograms;
  progress: (line: string) => void;
}

/** A cluster, with the publishers of one side on its nodes. */
async function openSide({ programs, nodes, progress }: Run, side: keyof typeof sides) {
  await using stack = new AsyncDisposableStack();
  const { driver, command } = sides[side];
  progress(`${side}: a cluster of ${nodes} nodes`);
  const cluster = stack.use(await LargeCluster.start(programs, program('kwok'), nodes));
  const args = [...command.slice(1), cluster.controlPlane.adminKubeconfig, driver, ...cluster.nodes];
  const publishers = stack.use(new PublisherProcess([command[0], ...args]));
  const owned = stack.move();
  return { cluster, publishers, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

async function measureViews(run: Run): Promise<void> {
  await using side = await openSide(run, 'netdra');
  const { cluster } = side;
  await cluster.createAll(definitionsPath, [findObject('CustomResourceDefinition', 'nodenetworkdevices.netdra.dev')]);
  const { up, down } = await readViews(sides.netdra.driver, run.vfs);
  const size = (view: object) => number(JSON.stringify(view).length / 1_000, 1);
  console.log(`NodeNetworkDevices: ${size(up)} kB of status each, ${size(down)} kB while a PF has no carrier.\n`);
  const files = { up: cluster.writeFile('up', up), down: cluster.writeFile('down', down) };
  console.log(`${formatOutcomes([['netdra', await playViews({ ...run, ...side }, files)]], run.nodes)}\n`);
}

async function measurePolicies(run: Run): Promise<void> {
  await using side = await openSide(run, 'netdra');
  const { cluster } = side;
  await cluster.createAll(definitionsPath, [
    findObject('CustomResourceDefinition', 'networkdevicepolicies.netdra.dev'),
  ]);
  const path = '/apis/netdra.dev/v1alpha1/networkdevicepolicies';
  const [example] = parseObjects(
    readFileSync(new URL('../../examples/network-device-policy.yaml', import.meta.url), 'utf8'),
  );
  const { spec, ...object } = example as KubernetesObject & { spec: object };
  const policy = { ...object, spec: { ...spec, nodeSelector: {} } };
  cluster.controlPlane.kubectl('wait', '--for=condition=Established', 'crd/networkdevicepolicies.netdra.dev');
  await cluster.createAll(path, [policy]);
  let round = 0;
  const change = async (isRefused: boolean) => {
    const body = { spec: { resourceName: isRefused ? 'example.com/refused' : `example.com/${round++}` } };
    const contentType = 'application/merge-patch+json';
    await cluster.client.request({ method: 'PATCH', path: `${path}/${object.metadata?.name}`, contentType, body });
  };
  console.log(`NetworkDevicePolicies\n`);
  console.log(`${formatOutcomes([['netdra', await playPolicies({ ...run, ...side }, change)]], run.nodes)}\n`);
}

async function measureSlices(run: Run): Promise<void> {
  const all = await discoverVfs(run.vfs);
  const played: [string, Outcome[]][] = [];
  for (const side of Object.keys(sides) as (keyof typeof sides)[]) {
    const { driver } = sides[side];
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
    if (side !== 'netdra') continue;
    run.progress(`${run.pods} pods`);
    console.log(`\n${formatPlacing(await placePods(cluster, driver, run.pods))}\n`);
  }
  console.log(`\n${formatOutcomes(played, run.nodes)}`);
}

async function main(): Promise<void> {
  const programs = readPrograms(process.env);
  const run = { ...readOptions(), programs, progress: (line: string) => console.error(`scale: ${line}`) };
  const machine = renderMachine(describeMachine());
  console.log(`Kubernetes ${programs.kubernetesVersion}; ${run.nodes} nodes with ${run.vfs} VFs each; ${machine}.\n`);
  if (run.only !== 'policies') await measureViews(run);
  if (run.only !== 'nodes') await measurePolicies(run);
  if (run.only === undefined) await measureSlices(run);
}

try {
  await main();
} catch (error) {
  console.error(`scale: ${explain(error)}`);
  process.exitCode = 1;
}
