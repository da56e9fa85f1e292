import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Bench, BenchOptions } from '../bench.ts';
import { type Case, interleave, timed } from '../interleave.ts';
import { Lab, type LabPod, prepare, unprepare } from '../lab.ts';
import { ReferenceProcess } from '../reference/reference-process.ts';
import { type BenchResult, bound, type Row, row } from '../result.ts';
import { type Distribution, summarize } from '../stats.ts';

const parameters = { interfaceName: 'net1', addresses: ['192.0.2.10/24'] };
/** Claims per call, concurrent calls; each group on a node with as many VFs as its largest load needs. */
const loads = {
  full: [
    [
      [1, 1],
      [4, 1],
      [16, 1],
      [1, 16],
    ],
    [[16, 16]],
  ],
  smoke: [
    [
      [1, 1],
      [2, 1],
      [1, 2],
    ],
  ],
} as const;

/** NodePrepareResources and NodeUnprepareResources, as the kubelet calls them. */
export const prepareBench: Bench = {
  name: 'prepare',
  async run(options) {
    const results: Measured[] = [];
    for (const group of loads[options.effort]) results.push(...(await measureGroup(group, options)));
    return toResult(results);
  },
};

async function measureGroup(group: readonly (readonly [number, number])[], options: BenchOptions): Promise<Measured[]> {
  const vfs = Math.max(...group.map(([claims, concurrency]) => claims * concurrency));
  const pfs = Math.ceil(vfs / 128);
  await using lab = await Lab.start({ ...options, simulate: { pfs, vfsPerPf: vfs / pfs } });
  await lab.startDriver();
  const devices = await lab.devices();
  await using stack = new AsyncDisposableStack();
  const dir = mkdtempSync(join(tmpdir(), 'netdra-reference-'));
  stack.defer(() => rmSync(dir, { recursive: true }));
  const reference = stack.use(await ReferenceProcess.start(dir, lab.apiPort));
  const pods = devices.map((device, index) => lab.addPod(`p${index}`, [[device]], parameters));
  const results: Measured[] = [];
  for (const [claims, concurrency] of group) {
    results.push(await measure({ lab, reference, pods, claims, concurrency, options }));
  }
  return results;
}

interface Load {
  lab: Lab;
  reference: ReferenceProcess;
  pods: LabPod[];
  claims: number;
  concurrency: number;
  options: BenchOptions;
}

interface Measured {
  claims: number;
  concurrency: number;
  prepare: Distribution;
  unprepare: Distribution;
  reads: Distribution;
  empty: Distribution;
}

async function measure({ lab, reference, pods, claims, concurrency, options }: Load): Promise<Measured> {
  options.progress(`prepare: ${claims} claims, ${concurrency} at once`);
  const calls = Array.from({ length: concurrency }, (_, call) =>
    pods.slice(call * claims, (call + 1) * claims).flatMap((pod) => pod.claims),
  );
  const { dra } = lab;
  const together = (call: (claims: LabPod['claims']) => Promise<unknown>) => timed(() => Promise.all(calls.map(call)));
  const unprepared: number[] = [];
  const ours: Case = {
    name: 'ours',
    async run() {
      const ms = await together((each) => prepare(dra, each));
      unprepared.push(await together((each) => unprepare(dra, each)));
      return ms;
    },
  };
  const reads: Case = { name: 'reads', run: () => together((each) => reference.dra.nodePrepareResources(each)) };
  const empty: Case = { name: 'empty', run: () => together((each) => reference.dra.nodeUnprepareResources(each)) };
  const isSmall = claims * concurrency <= 16;
  const rounds =
    options.effort === 'full'
      ? { rounds: isSmall ? 8 : 3, perRound: isSmall ? 8 : 2, warmUpRounds: isSmall ? 3 : 1 }
      : { rounds: 2, perRound: 2, warmUpRounds: 0 };
  const [prepareMs = [], readMs = [], emptyMs = []] = await interleave([ours, reads, empty], rounds);
  return {
    claims,
    concurrency,
    prepare: summarize(prepareMs),
    unprepare: summarize(unprepared.slice(-prepareMs.length)),
    reads: summarize(readMs),
    empty: summarize(emptyMs),
  };
}

function toResult(results: Measured[]): BenchResult {
  const rows = results.flatMap(({ claims, concurrency, reads, empty, ...ours }): Row[] => {
    const load = `${claims} ${claims === 1 ? 'claim' : 'claims'}${concurrency === 1 ? '' : `, ${concurrency} calls at once`}`;
    return [
      row(`prepare ${load}`, 'ms', ours.prepare, { what: `empty call + ${claims} GET`, ...reads }),
      row(`unprepare ${load}`, 'ms', ours.unprepare, { what: 'empty call', ...empty }),
    ];
  });
  const alone = results.filter(({ concurrency }) => concurrency === 1);
  const [first, last] = [alone[0]!, alone.at(-1)!];
  return {
    name: 'prepare',
    about:
      'NodePrepareResources and NodeUnprepareResources over gRPC, each claim with a VF of its own. The reference is a grpc-js server that only reads the claims; with several calls at once the time is until all are answered.',
    rows,
    bounds: [
      bound('prepare of 1 claim / empty grpc-js call + 1 GET', first.prepare.median / first.reads.median, 2.5, '×'),
      bound(`prepare of ${last.claims} claims / prepare of 1`, last.prepare.median / first.prepare.median, 2, '×'),
    ],
    plots: [
      {
        name: 'prepare',
        title: 'One call of the kubelet, by the claims in it (median)',
        xLabel: 'claims',
        yLabel: 'ms',
        series: [
          { name: 'prepare', points: alone.map(({ claims, prepare: { median } }) => [claims, median]) },
          { name: 'unprepare', points: alone.map(({ claims, unprepare: { median } }) => [claims, median]) },
          { name: 'reference: empty call + GETs', points: alone.map(({ claims, reads }) => [claims, reads.median]) },
        ],
      },
    ],
    notes: [
      `The API server's part alone: ${last.claims} GETs take ${(last.reads.median / first.reads.median).toFixed(1)} times as long as one, on ${availableParallelism()} cores that it shares with the driver.`,
    ],
  };
}
