import { setTimeout as sleep } from 'node:timers/promises';
import { TestNetns } from '../../doubles/netns.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { makeLinks } from '../go/links.ts';
import { linksAnnotation } from '../go/programs.ts';
import { RealLab, type Side, sides } from '../go/real-lab.ts';
import { type Case, interleave, type Rounds, timed } from '../interleave.ts';
import { type LabPod, prepare, unprepare } from '../lab.ts';
import { type BenchResult, bound, type Row, row } from '../result.ts';
import { cpuMs, residentMb } from '../shipped-driver.ts';
import { type Distribution, summarize } from '../stats.ts';

/** Claims in one call, calls at once. */
type Load = readonly [claims: number, calls: number];
const small: readonly Load[] = [
  [1, 1],
  [4, 1],
  [16, 1],
  [1, 16],
];
/** On a node with as many VFs as the project promises to serve. */
const large: readonly Load[] = [
  [64, 1],
  [1, 64],
  [1, 250],
];
const largestNode = 512;
/** Median by median, by claims and calls. */
const limits = new Map([
  ['1 1', 1],
  ['16 1', 0.8],
  ['1 16', 1],
]);
const vfCounts = { full: [1, 4, 8], smoke: [1] } as const;
/** How long processes are left alone before they are weighed. */
const restMs = 3_000;
const goDriver = "Go's test driver";
const goPlugin = "Go's NRI plugin";

/** What the driver takes beside programs in Go that do the same, or less. */
export const goBench: Bench = {
  name: 'go',
  async run(options) {
    const isFull = options.effort === 'full';
    const first = await measureNode(options, isFull ? small : [[1, 1]], 16);
    const calls = [...first.calls, ...(isFull ? (await measureNode(options, large, largestNode)).calls : [])];
    return toResult(calls, first);
  },
};

interface Measured {
  claims: number;
  calls: number;
  prepare: Record<Side, Distribution>;
  unprepare: Record<Side, Distribution>;
}

interface MeasuredNode {
  calls: Measured[];
  memory: Record<Side, Distribution>;
  /** For each claim, prepared and unprepared. */
  cpu: Record<Side, Distribution>;
  hooks: { vfs: number; run: Record<Side, Distribution>; stop: Record<Side, Distribution> }[];
}

async function measureNode(options: BenchOptions, loads: readonly Load[], vfs: number): Promise<MeasuredNode> {
  options.progress(`go: a node with ${vfs} VFs`);
  await using lab = await RealLab.start(options, vfs);
  const devices = await lab.devices(vfs);
  const isLarge = vfs === largestNode;
  const most = Math.max(...loads.map(([claims, calls]) => claims * calls));
  const pods: Record<Side, LabPod[]> = { netdra: [], go: [] };
  for (const device of devices.slice(0, most)) {
    pods.netdra.push(await lab.addPod('netdra', [[device]], { interfaceName: 'net1', addresses: ['192.0.2.10/24'] }));
    pods.go.push(await lab.addPod('go', [[`device-${pods.go.length}`]], { interfaceName: 'net1' }));
  }
  const calls: Measured[] = [];
  const cpuBefore = bothSides((side) => cpuMs(lab.pids[side]));
  const done = { netdra: 0, go: 0 };
  for (const load of loads) {
    options.progress(`go: ${load[0]} claims, ${load[1]} at once`);
    calls.push(await measureCalls(lab, pods, load, options, done));
  }
  const cpu = bothSides((side) => summarize([(cpuMs(lab.pids[side]) - cpuBefore[side]) / done[side]]));
  await sleep(options.effort === 'full' ? restMs : 50);
  const memory = bothSides((side) => summarize([residentMb(lab.pids[side])]));
  const hooks = isLarge ? [] : await measureHooks(lab, devices, options);
  return { calls, memory, cpu, hooks };
}

async function measureCalls(
  lab: RealLab,
  pods: Record<Side, LabPod[]>,
  [claims, calls]: Load,
  { effort }: BenchOptions,
  done: Record<Side, number>,
): Promise<Measured> {
  const unprepared: Record<Side, number[]> = { netdra: [], go: [] };
  const caseOf = (side: Side): Case => {
    const dra = lab.dra(side);
    const batches = Array.from({ length: calls }, (_, call) =>
      pods[side].slice(call * claims, (call + 1) * claims).flatMap((pod) => pod.claims),
    );
    return {
      name: side,
      async run() {
        const ms = await timed(() => Promise.all(batches.map((batch) => prepare(dra, batch))));
        unprepared[side].push(await timed(() => Promise.all(batches.map((batch) => unprepare(dra, batch)))));
        done[side] += claims * calls;
        return ms;
      },
    };
  };
  const isLarge = claims * calls > 16;
  const rounds =
    effort === 'full'
      ? { rounds: isLarge ? 5 : 10, perRound: isLarge ? 3 : 8, warmUpRounds: isLarge ? 1 : 3 }
      : { rounds: 2, perRound: 2, warmUpRounds: 0 };
  const [ours = [], theirs = []] = await interleave(sides.map(caseOf), rounds);
  return {
    ...{ claims, calls },
    prepare: { netdra: summarize(ours), go: summarize(theirs) },
    unprepare: bothSides((side) => summarize(unprepared[side].slice(-ours.length))),
  };
}

/** RunPodSandbox over ttrpc: VFs of a claim against links that a pod's annotation names; and a pod that has neither. */
async function measureHooks(lab: RealLab, devices: string[], { effort, progress }: BenchOptions) {
  using netns = new TestNetns('pod');
  const links = makeLinks(8);
  const results: MeasuredNode['hooks'] = [];
  let sandboxes = 0;
  const namespaces = [{ type: 'network', path: netns.path }];
  for (const vfs of [0, ...vfCounts[effort]]) {
    progress(`go: hook, ${vfs} VFs`);
    const pod = vfs === 0 ? undefined : await lab.addPod('netdra', [devices.slice(0, vfs)], {});
    const stops: Record<Side, number[]> = { netdra: [], go: [] };
    const caseOf = (side: Side): Case => ({
      name: side,
      async run() {
        const number = sandboxes++;
        const annotations = side === 'go' ? { [linksAnnotation]: links.slice(0, vfs).join(',') } : {};
        const uid = (side === 'netdra' ? pod?.uid : undefined) ?? `uid-${number}`;
        const sandbox = { id: `s${number}`, name: `p${number}`, namespace: 'default', uid, namespaces, annotations };
        if (side === 'netdra' && pod !== undefined) await prepare(lab.dra(side), pod.claims);
        const runtime = lab.runtimes[side];
        const ms = await timed(() => runtime.runPodSandbox(sandbox));
        stops[side].push(await timed(() => runtime.stopPodSandbox(sandbox)));
        await runtime.removePodSandbox(sandbox);
        if (side === 'netdra' && pod !== undefined) await unprepare(lab.dra(side), pod.claims);
        return ms;
      },
    });
    const [ours = [], theirs = []] = await interleave(sides.map(caseOf), hookRounds(effort, vfs));
    results.push({
      vfs,
      run: { netdra: summarize(ours), go: summarize(theirs) },
      stop: bothSides((side) => summarize(stops[side].slice(-ours.length))),
    });
  }
  return results;
}

function hookRounds(effort: BenchOptions['effort'], vfs: number): Rounds {
  if (effort === 'smoke') return { rounds: 2, perRound: 2, warmUpRounds: 0 };
  return vfs === 0 ? { rounds: 10, perRound: 50, warmUpRounds: 2 } : { rounds: 8, perRound: 4, warmUpRounds: 1 };
}

function toResult(calls: Measured[], { memory, cpu, hooks }: MeasuredNode): BenchResult {
  const compare = (what: string, unit: Row['unit'], of: Record<Side, Distribution>, theirs = goDriver) =>
    row(what, unit, of.netdra, { what: theirs, ...of.go });
  const callRows = calls.flatMap((each) => {
    const load = loadName(each);
    return [compare(`prepare ${load}`, 'ms', each.prepare), compare(`unprepare ${load}`, 'ms', each.unprepare)];
  });
  const hookRows = hooks.flatMap(({ vfs, run, stop }) => {
    const what = vfs === 0 ? 'a pod without any' : `${vfs} VF${vfs === 1 ? '' : 's'} moved`;
    return [
      compare(`hook: ${what}`, 'ms', run, goPlugin),
      ...(vfs === 0 ? [] : [compare(`stop: ${what}`, 'ms', stop, goPlugin)]),
    ];
  });
  const alone = calls.filter((each) => each.calls === 1);
  const atOnce = calls.filter((each) => each.claims === 1);
  const moved = hooks.filter(({ vfs }) => vfs > 0);
  return {
    name: 'go',
    about: about,
    rows: [
      ...callRows,
      compare('CPU for each claim', 'ms', cpu),
      compare('memory after all calls of up to 16 claims', 'MB', memory),
      ...hookRows,
    ],
    bounds: [
      ...calls.flatMap(callBounds),
      bound('memory after these calls / Go', memory.netdra.median / memory.go.median, 1.2, '×'),
    ],
    plots: [
      plot(
        'go-calls',
        'One call with many claims, beside Go (median)',
        'claims',
        alone.map((each) => [each.claims, each]),
      ),
      plot(
        'go-at-once',
        'Many calls of one claim at once, beside Go (median)',
        'calls',
        atOnce.map((each) => [each.calls, each]),
      ),
      {
        ...{
          name: 'go-hook',
          title: 'RunPodSandbox that moves links, beside Go (median)',
          xLabel: 'VFs',
          yLabel: 'ms',
        },
        series: sides.map((side) => ({
          name: side === 'netdra' ? 'netdra' : "reference: Go's plugin",
          points: moved.map(({ vfs, run }): [number, number] => [vfs, run[side].median]),
        })),
      },
    ],
  };
}

const about =
  "Beside programs in Go, in turns, with a real etcd and API server, of which each driver reads its claims with the rights of an installed driver. NodePrepareResources and NodeUnprepareResources: upstream's DRA test driver of Kubernetes 1.36 with device metadata and without client throttling; it touches no device. RunPodSandbox: an NRI plugin of ours on containerd's Go stub, which moves links with vishvananda/netlink, sets them up, and does nothing else: e2e/go/nri-plugin. Loads of more than 16 claims: on a node with 512 VFs.";

function loadName({ claims, calls }: Pick<Measured, 'claims' | 'calls'>): string {
  return `${claims} ${claims === 1 ? 'claim' : 'claims'}${calls === 1 ? '' : `, ${calls} calls at once`}`;
}

function callBounds(each: Measured) {
  const limit = limits.get(`${each.claims} ${each.calls}`);
  if (limit === undefined) return [];
  return (['prepare', 'unprepare'] as const).map((what) =>
    bound(`${what} ${loadName(each)} / Go`, each[what].netdra.median / each[what].go.median, limit, '×'),
  );
}

function plot(name: string, title: string, xLabel: string, points: [number, Measured][]) {
  return {
    ...{ name, title, xLabel, yLabel: 'ms' },
    series: (['prepare', 'unprepare'] as const).flatMap((what) =>
      sides.map((side) => ({
        name: side === 'netdra' ? what : `reference: Go's ${what}`,
        points: points.map(([x, each]): [number, number] => [x, each[what][side].median]),
      })),
    ),
  };
}

function bothSides<T>(of: (side: Side) => T): Record<Side, T> {
  return { netdra: of('netdra'), go: of('go') };
}
