import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench } from '../bench.ts';
import { Lab } from '../lab.ts';
import { bound, row } from '../result.ts';
import { cpuMs, residentMb } from '../shipped-driver.ts';
import { summarize } from '../stats.ts';
import { cycleRunner } from './memory.ts';

/** What recording costs: drivers with and without it take turns on the same node. */
export const recordingBench: Bench = {
  name: 'recording',
  async run({ effort, progress, ...options }) {
    const [rounds, cycles, warmUp, restMs] = effort === 'full' ? [4, 300, 200, 3_000] : [1, 8, 1, 50];
    await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: 8 } });
    const measured = {
      with: { cpu: [] as number[], mb: [] as number[] },
      without: { cpu: [] as number[], mb: [] as number[] },
    };
    for (let round = 0; round < rounds; round++) {
      for (const recordIncidents of round % 2 === 0 ? [true, false] : [false, true]) {
        progress(`recording: round ${round + 1} of ${rounds}, ${recordIncidents ? 'with' : 'without'}`);
        const driver = await lab.startDriver({ recordIncidents });
        {
          using runner = await cycleRunner(lab, `${round}${recordIncidents}`.toLowerCase());
          await runner.run(warmUp);
          const before = cpuMs(driver.pid);
          await runner.run(cycles);
          const { cpu, mb } = measured[recordIncidents ? 'with' : 'without'];
          cpu.push((cpuMs(driver.pid) - before) / cycles);
          await sleep(restMs);
          mb.push(residentMb(driver.pid));
        }
        await lab.stopDriver();
      }
    }
    const [on, off] = [measured.with, measured.without];
    const rowOf = (what: string, unit: 'ms' | 'MB', of: 'cpu' | 'mb') =>
      row(what, unit, summarize(on[of]), { what: 'without recording', ...summarize(off[of]) });
    const ratio = (of: 'cpu' | 'mb') => summarize(on[of]).median / summarize(off[of]).median;
    return {
      name: 'recording',
      about: `The driver as the image starts it, with and without the recording of incidents in turns, ${rounds} times each: CPU time of a pod's life (prepare, hook, stop, unprepare), over ${cycles} of them after ${warmUp}, and resident memory after them.`,
      rows: [rowOf('CPU of each cycle', 'ms', 'cpu'), rowOf(`memory after ${cycles + warmUp} cycles`, 'MB', 'mb')],
      bounds: [
        bound('CPU with / without recording', ratio('cpu'), 1.1, '×'),
        bound('RSS with / without recording', ratio('mb'), 1.15, '×'),
      ],
    };
  },
};
