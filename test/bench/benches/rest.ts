import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { TestNetns } from '../../doubles/netns.ts';
import type { Bench } from '../bench.ts';
import { Lab, prepare } from '../lab.ts';
import { bound, row } from '../result.ts';
import { cpuMs, wakeUps } from '../shipped-driver.ts';
import { summarize } from '../stats.ts';

/** Looks at each of the paths once a second: the least that finds out when a pod's network namespace is gone. */
const lookProgram = `
  const { statSync } = require('node:fs');
  const paths = process.argv.slice(1);
  setInterval(() => paths.map((path) => statSync(path).ino), 1_000);
`;

/** What the driver takes on a node where no pod comes or goes. */
export const restBench: Bench = {
  name: 'rest',
  async run(options) {
    const isFull = options.effort === 'full';
    const podCount = isFull ? 100 : 2;
    // Reconciliation runs once a minute, and devices are scanned twice.
    const [settleMs, windowMs] = isFull ? [35_000, 60_000] : [500, 1_500];
    await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: isFull ? 128 : 4 } });
    const driver = await lab.startDriver();
    const devices = await lab.devices();
    options.progress('rest: no pods');
    await sleep(settleMs);
    const [alone] = await observe([driver.pid], windowMs);
    using stack = new DisposableStack();
    const paths: string[] = [];
    for (const [index, device] of devices.slice(0, podCount).entries()) {
      const netns = stack.use(new TestNetns(`rest${index}`));
      paths.push(netns.path);
      await startPod(lab, index, device, netns.path);
    }
    options.progress(`rest: ${podCount} pods`);
    const reference = spawn(process.execPath, ['-e', lookProgram, ...paths], { stdio: 'ignore' });
    await once(reference, 'spawn');
    await sleep(settleMs);
    const [busy, bare] = await observe([driver.pid, reference.pid!], windowMs);
    reference.kill();
    await once(reference, 'exit');
    const looks = 'one look a second at each';
    return {
      name: 'rest',
      about: `A second on a node where nothing happens, with ${devices.length} VFs, over ${windowMs / 1_000} s: the CPU time of the driver, and how often its main thread wakes up. The reference is a Node.js process that looks once a second whether the network namespace of each pod is still there.`,
      rows: [
        row('no pods: CPU', 'ms', summarize([alone!.cpuMs])),
        row('no pods: wake-ups', 'wake-ups', summarize([alone!.wakeUps])),
        row(`${podCount} pods: CPU`, 'ms', summarize([busy!.cpuMs]), { what: looks, ...summarize([bare!.cpuMs]) }),
        row(`${podCount} pods: wake-ups`, 'wake-ups', summarize([busy!.wakeUps]), {
          what: looks,
          ...summarize([bare!.wakeUps]),
        }),
      ],
      bounds: [
        bound('wake-ups in a second at rest, no pods', alone!.wakeUps, 20, 'wake-ups'),
        bound(`wake-ups in a second at rest, ${podCount} pods`, busy!.wakeUps, 40, 'wake-ups'),
      ],
    };
  },
};

/** What processes do in a second, on the average of some time. */
async function observe(pids: number[], forMs: number): Promise<{ cpuMs: number; wakeUps: number }[]> {
  const read = () => pids.map((pid) => ({ cpuMs: cpuMs(pid), wakeUps: wakeUps(pid) }));
  const [before, startedAt] = [read(), performance.now()];
  await sleep(forMs);
  const seconds = (performance.now() - startedAt) / 1_000;
  return read().map((after, index) => ({
    cpuMs: (after.cpuMs - before[index]!.cpuMs) / seconds,
    wakeUps: (after.wakeUps - before[index]!.wakeUps) / seconds,
  }));
}

/** A pod with one VF and one container. */
async function startPod(lab: Lab, index: number, device: string, netnsPath: string): Promise<void> {
  const pod = lab.addPod(`rest${index}`, [[device]], { interfaceName: 'net1', addresses: ['192.0.2.1/24'] });
  const namespaces = [{ type: 'network', path: netnsPath }];
  const sandbox = { id: `rest${index}`, name: pod.name, namespace: 'default', uid: pod.uid, namespaces };
  await prepare(lab.dra, pod.claims);
  await lab.runtime.runPodSandbox(sandbox);
  await lab.runtime.createContainer(sandbox, { id: `c${index}`, podSandboxId: sandbox.id, name: 'main' });
}
