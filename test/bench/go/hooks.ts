import { TestNetns } from '../../doubles/netns.ts';
import type { BenchOptions } from '../bench.ts';
import { type Case, interleave, type Rounds, timed } from '../interleave.ts';
import { prepare, unprepare } from '../lab.ts';
import { type Row, row } from '../result.ts';
import { type Distribution, summarize } from '../stats.ts';
import { makeLinks } from './links.ts';
import { linksAnnotation } from './programs.ts';
import { bothSides, type RealLab, type Side, sides } from './real-lab.ts';

/** Times of the hooks of pods with this many VFs. */
export interface MeasuredHooks {
  vfs: number;
  run: Record<Side, Distribution>;
  stop: Record<Side, Distribution>;
}

const goPlugin = "Go's NRI plugin";

/** RunPodSandbox over ttrpc: VFs of a claim, or links from a pod's annotation. @param vfs of one pod; 0: no claim */
export async function measureHooks(
  lab: RealLab,
  devices: readonly string[],
  vfCounts: readonly number[],
  { effort, progress }: BenchOptions,
): Promise<MeasuredHooks[]> {
  using netns = new TestNetns('pod');
  const links = makeLinks(Math.max(...vfCounts));
  const namespaces = [{ type: 'network', path: netns.path }];
  const results: MeasuredHooks[] = [];
  let sandboxes = 0;
  for (const vfs of vfCounts) {
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

export function hookRows(hooks: readonly MeasuredHooks[]): Row[] {
  const compare = (what: string, of: Record<Side, Distribution>) =>
    row(what, 'ms', of.netdra, { what: goPlugin, ...of.go });
  return hooks.flatMap(({ vfs, run, stop }) => {
    if (vfs === 0) return [compare('pod without any', run)];
    const what = `${vfs} VF${vfs === 1 ? '' : 's'} moved`;
    return [compare(what, run), compare(`stop, ${what} back`, stop)];
  });
}
