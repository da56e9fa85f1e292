import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { TestNetns } from '../../doubles/netns.ts';
import type { Bench } from '../bench.ts';
import { Lab, prepare, unprepare } from '../lab.ts';
import { bound, row } from '../result.ts';
import { cpuMs, residentMb } from '../shipped-driver.ts';
import { summarize } from '../stats.ts';

/** Idle time of a process before its memory is measured. */
const restMs = 3_000;
const pods = 8;

/** Resident memory after the start and after many pod life cycles. */
export const memoryBench: Bench = {
  name: 'memory',
  async run(options) {
    const cycles = options.effort === 'full' ? 3_000 : 6;
    const pauseMs = options.effort === 'full' ? restMs : 50;
    const bareMb = await weighBareNode(pauseMs);
    await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: 8 } });
    const driver = await lab.startDriver();
    await lab.devices();
    await sleep(pauseMs);
    const startedMb = residentMb(driver.pid);
    const runner = await cycleRunner(lab);
    const step = cycles / 3;
    let warmMb = 0;
    const cpuBefore = cpuMs(driver.pid);
    for (let done = 0; done < cycles; done += step) {
      options.progress(`memory: ${done} of ${cycles} cycles`);
      await runner.run(step);
      await sleep(pauseMs);
      // By then all code was used once, and everything that is loaded on first use is there.
      if (done === 0) warmMb = residentMb(driver.pid);
    }
    const cpu = (cpuMs(driver.pid) - cpuBefore) / cycles;
    runner[Symbol.dispose]();
    const usedMb = residentMb(driver.pid);
    const bare = { what: 'node -e, idle', ...summarize([bareMb]) };
    return {
      name: 'memory',
      about: `Resident memory of the driver as the image starts it, with 8 VFs: after the start, and after ${cycles} cycles of prepare, hook, stop and unprepare, ${pods} pods at a time. MB are 10⁶ bytes.`,
      rows: [
        row('after the start', 'MB', summarize([startedMb]), bare),
        row(`after ${cycles / 3} cycles`, 'MB', summarize([warmMb]), bare),
        row(`after ${cycles} cycles`, 'MB', summarize([usedMb]), bare),
        row('CPU of each cycle', 'ms', summarize([cpu])),
      ],
      bounds: [
        bound('RSS after the start / node -e', startedMb / bareMb, 2, '×'),
        bound(`RSS after ${cycles} cycles / after ${cycles / 3}`, usedMb / warmMb, 1.05, '×'),
      ],
    };
  },
};

async function weighBareNode(pauseMs: number): Promise<number> {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => undefined, 1e6)'], { stdio: 'ignore' });
  await once(child, 'spawn');
  await sleep(Math.max(200, pauseMs));
  const mb = residentMb(child.pid!);
  child.kill();
  await once(child, 'exit');
  return mb;
}

/** Life cycles of pods, {@link pods} at a time. @param name of the pods, without their number */
export async function cycleRunner(lab: Lab, name = 'm'): Promise<{ run(cycles: number): Promise<void> } & Disposable> {
  const { dra, runtime } = lab;
  const devices = await lab.devices();
  const stack = new DisposableStack();
  let started = 0;
  const slots = Array.from({ length: pods }, (_, slot) => {
    const netns = stack.use(new TestNetns(`${name}${slot}`));
    const parameters = { interfaceName: 'net1', addresses: [`192.0.2.${slot + 1}/24`] };
    return { pod: lab.addPod(`${name}${slot}`, [[devices[slot]!]], parameters), netns };
  });
  const cycle = async ({ pod, netns }: (typeof slots)[number]) => {
    const namespaces = [{ type: 'network', path: netns.path }];
    const sandbox = { id: `s${started++}`, name: pod.name, namespace: 'default', uid: pod.uid, namespaces };
    await prepare(dra, pod.claims);
    await runtime.runPodSandbox(sandbox);
    await runtime.stopPodSandbox(sandbox);
    await runtime.removePodSandbox(sandbox);
    await unprepare(dra, pod.claims);
  };
  return {
    async run(cycles) {
      let left = cycles;
      const work = async (slot: (typeof slots)[number]) => {
        while (left-- > 0) await cycle(slot);
      };
      await Promise.all(slots.map(work));
    },
    [Symbol.dispose]: () => stack.dispose(),
  };
}
