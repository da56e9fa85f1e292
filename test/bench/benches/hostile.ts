import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../../../src/lib/clock.ts';
import { TestNetns } from '../../doubles/netns.ts';
import type { Bench } from '../bench.ts';
import { timed } from '../interleave.ts';
import { Lab, prepare, unprepare } from '../lab.ts';
import { bound, row } from '../result.ts';
import { summarize } from '../stats.ts';

const addressCount = { full: 20_000, smoke: 500 } as const;

/** The effect of one hostile pod on the hooks of others: it changes its links and addresses as fast as it can. */
export const hostileBench: Bench = {
  name: 'hostile',
  async run({ effort, progress, ...options }) {
    await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: 8 } });
    await lab.startDriver();
    const [other = '', own = ''] = await lab.devices();
    using stack = new DisposableStack();
    const [quietNetns, hostileNetns, besideNetns] = ['quiet', 'hostile', 'beside'].map((name) =>
      stack.use(new TestNetns(name)),
    ) as [TestNetns, TestNetns, TestNetns];
    const sandboxOf = (id: string, name: string, uid: string, netns: TestNetns) => ({
      ...{ id, name, namespace: 'default', uid },
      namespaces: [{ type: 'network', path: netns.path }],
    });
    const hostile = lab.addPod('hostile', [[own]], { interfaceName: 'net1' });
    await prepare(lab.dra, hostile.claims);
    await lab.runtime.runPodSandbox(sandboxOf('s-hostile', 'hostile', hostile.uid, hostileNetns));
    // The same in a namespace unknown to the driver: shows the share of the kernel's locks and of the processors.
    besideNetns.exec('ip', 'link', 'add', 'net1', 'type', 'veth', 'peer', 'name', 'peer1');

    const pod = lab.addPod('other', [[other]], { interfaceName: 'net1' });
    // With fewer, the 99th percentile is a single run.
    const runs = effort === 'full' ? 400 : 3;
    let sandboxes = 0;
    const measure = async (count = runs) => {
      const times: number[] = [];
      for (let run = 0; run < count; run++) {
        const sandbox = sandboxOf(`s${sandboxes++}`, pod.name, pod.uid, quietNetns);
        await prepare(lab.dra, pod.claims);
        times.push(await timed(() => lab.runtime.runPodSandbox(sandbox)));
        await lab.runtime.stopPodSandbox(sandbox);
        await lab.runtime.removePodSandbox(sandbox);
        await unprepare(lab.dra, pod.claims);
      }
      return summarize(times);
    };
    const batch = join(options.workDir, 'hostile.batch');
    writeFileSync(batch, changes(addressCount[effort]));
    progress('hostile: no attacker');
    await measure(Math.ceil(runs / 10));
    const quiet = await measure();
    const under = async (netns: TestNetns) => {
      const process = attack(netns, batch);
      try {
        await systemClock.sleep(effort === 'full' ? 15_000 : 500);
        return await measure();
      } finally {
        await end(process);
      }
    };
    progress('hostile: a namespace beside');
    const beside = await under(besideNetns);
    progress('hostile: a pod with a VF');
    const attacked = await under(hostileNetns);
    return {
      name: 'hostile',
      about: `RunPodSandbox of a pod with one VF, while another pod adds ${addressCount[effort].toLocaleString('en')} addresses, adds and removes alternative names, and switches its link on and off, over and over, as fast as iproute2 can. The reference does the same in a network namespace that the driver knows nothing of: the kernel's locks and the processors are shared with it, too.`,
      rows: [
        row('nothing else happens', 'ms', quiet),
        row('a hostile pod with a VF', 'ms', attacked, { what: 'the same changes in a foreign namespace', ...beside }),
      ],
      bounds: [bound('p99 of another hook: hostile pod / foreign namespace', attacked.p99 / beside.p99, 1.2, '×')],
      notes: [],
    };
  },
};

function changes(addresses: number): string {
  const lines = Array.from({ length: addresses }, (_, index) => {
    const address = `10.${1 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
    const flap = index % 50 === 0 ? ['link set net1 down', 'link set net1 up'] : [];
    const name =
      index % 20 === 0
        ? [`link property add dev net1 altname alt${index}`, `link property del dev net1 altname alt${index}`]
        : [];
    return [`addr replace ${address}/32 dev net1`, ...flap, ...name].join('\n');
  });
  return `${lines.join('\n')}\n`;
}

function attack(netns: TestNetns, batch: string): ChildProcess {
  const script = 'while :; do ip -force -batch "$1"; done';
  return spawn('nsenter', [`--net=${netns.path}`, '--', 'sh', '-c', script, 'sh', batch], {
    stdio: 'ignore',
    detached: true,
  });
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  process.kill(-(child.pid ?? 0), 'SIGKILL');
  await ended;
}
