import { setTimeout as sleep } from 'node:timers/promises';
import type { DraClient, WireClaim } from '../../doubles/kubelet-dra-client.ts';
import type { BenchOptions } from '../bench.ts';
import { type Case, interleave, timed } from '../interleave.ts';
import { type LabPod, prepare, unprepare } from '../lab.ts';
import { type Row, row } from '../result.ts';
import { cpuMs, residentMb } from '../shipped-driver.ts';
import { type Distribution, summarize } from '../stats.ts';
import { RealLab, type Side, sides } from './real-lab.ts';

/** Number of claims per call, and of concurrent calls. */
export type Load = readonly [claims: number, calls: number];

/** Times of the calls of one load. */
export interface MeasuredCalls {
  claims: number;
  calls: number;
  prepare: Record<Side, Distribution>;
  unprepare: Record<Side, Distribution>;
}

export interface MeasuredNode {
  calls: MeasuredCalls[];
  /** Resident memory after all calls. */
  memory: Record<Side, Distribution>;
  /** CPU time for each claim that was prepared and unprepared. */
  cpu: Record<Side, Distribution>;
}

const goDriver = "Go's test driver";
/** Idle time of processes before their memory is measured. */
const restMs = 3_000;

/** NodePrepareResources and NodeUnprepareResources of both drivers, in turns. @param vfs number on the node */
export async function measureNode(options: BenchOptions, loads: readonly Load[], vfs: number): Promise<MeasuredNode> {
  options.progress(`go: a node with ${vfs} VFs`);
  await using stack = new AsyncDisposableStack();
  const lab = stack.use(await RealLab.start(options, vfs));
  const devices = await lab.devices(vfs);
  const most = Math.max(...loads.map(([claims, calls]) => claims * calls));
  const pods: Record<Side, LabPod[]> = { netdra: [], go: [] };
  for (const device of devices.slice(0, most)) {
    pods.netdra.push(await lab.addPod('netdra', [[device]], { interfaceName: 'net1', addresses: ['192.0.2.10/24'] }));
    pods.go.push(await lab.addPod('go', [[`device-${pods.go.length}`]], { interfaceName: 'net1' }));
  }
  const clients: Clients = {
    netdra: toClient(lab.dra('netdra'), pods.netdra),
    go: toClient(lab.dra('go'), pods.go),
  };
  const calls: MeasuredCalls[] = [];
  const cpuBefore = each((side) => cpuMs(lab.pids[side]));
  let done = 0;
  for (const load of loads) {
    options.progress(`go: ${load[0]} claims, ${load[1]} at once`);
    const measured = await measureCalls(clients, load, options);
    calls.push(measured);
    done += measured.done;
  }
  const cpu = each((side) => summarize([(cpuMs(lab.pids[side]) - cpuBefore[side]) / done]));
  await sleep(options.effort === 'full' ? restMs : 50);
  return { calls, cpu, memory: each((side) => summarize([residentMb(lab.pids[side])])) };
}

/** The calls to a driver, and the pods whose claims they are for. */
interface Client {
  pods: readonly LabPod[];
  prepare(claims: WireClaim[]): Promise<unknown>;
  unprepare(claims: WireClaim[]): Promise<unknown>;
}

type Clients = Record<Side, Client>;

function toClient(dra: DraClient, pods: readonly LabPod[]): Client {
  return { pods, prepare: (claims) => prepare(dra, claims), unprepare: (claims) => unprepare(dra, claims) };
}

function each<T>(of: (side: Side) => T): Record<Side, T> {
  return { netdra: of('netdra'), go: of('go') };
}

/** @returns `done` says how many claims each driver has prepared and unprepared */
async function measureCalls(
  clients: Clients,
  [claims, calls]: Load,
  { effort }: BenchOptions,
): Promise<MeasuredCalls & { done: number }> {
  const unprepared = each((): number[] => []);
  const caseOf = (side: Side): Case => {
    const { pods, ...client } = clients[side];
    const batches = Array.from({ length: calls }, (_, call) =>
      pods.slice(call * claims, (call + 1) * claims).flatMap((pod) => pod.claims),
    );
    return {
      name: side,
      async run() {
        const ms = await timed(() => Promise.all(batches.map(client.prepare)));
        unprepared[side].push(await timed(() => Promise.all(batches.map(client.unprepare))));
        return ms;
      },
    };
  };
  const isLarge = claims * calls > 16;
  const rounds =
    effort === 'full'
      ? { rounds: isLarge ? 5 : 10, perRound: isLarge ? 3 : 8, warmUpRounds: isLarge ? 1 : 3 }
      : { rounds: 2, perRound: 2, warmUpRounds: 0 };
  const times = await interleave(sides.map(caseOf), rounds);
  return {
    claims,
    calls,
    prepare: each((side) => summarize(times[sides.indexOf(side)] ?? [])),
    unprepare: each((side) => summarize(unprepared[side].slice(-rounds.rounds * rounds.perRound))),
    done: unprepared.netdra.length * claims * calls,
  };
}

export function loadName({ claims, calls }: Pick<MeasuredCalls, 'claims' | 'calls'>): string {
  return `${claims} ${claims === 1 ? 'claim' : 'claims'}${calls === 1 ? '' : `, ${calls} calls at once`}`;
}

export function callRows({ calls, cpu, memory }: MeasuredNode): Row[] {
  const compare = (what: string, unit: Row['unit'], of: Record<Side, Distribution>) =>
    row(what, unit, of.netdra, { what: goDriver, ...of.go });
  return [
    ...calls.flatMap((measured) => [
      compare(`prepare ${loadName(measured)}`, 'ms', measured.prepare),
      compare(`unprepare ${loadName(measured)}`, 'ms', measured.unprepare),
    ]),
    compare('CPU for each claim', 'ms', cpu),
    compare('memory after these calls', 'MB', memory),
  ];
}
