import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { run } from '../../scripts/packages/run.ts';
import { listCgroupFolders, listFolder, listProcesses } from '../node/host-state.ts';
import { takeBaseline } from '../node/leftovers.ts';

const repository = fileURLToPath(new URL('../..', import.meta.url));
const script = 'scripts/in-node.sh';
/** A case with a pod, which is still running when the suite is killed: it replaces the driver. */
const suite = ['vitest', 'run', '--config', 'e2e/cluster/vitest.config.ts', 'suite.test.ts', '-t', 'is replaced'];
const startup = { timeout: 170_000, interval: 200 };
const teardown = { timeout: 30_000, interval: 200 };

/** Written by a kubelet wherever it runs. A second kubelet with the same folders removes the logs of the first one's pods. */
const kubeletDirs = ['/var/log/pods', '/var/log/containers', '/usr/libexec/kubernetes/kubelet-plugins/volume'];

/** State of the machine, which is the node of this test: the suite that is killed has a node within it. */
function look() {
  const own = process.env.NETDRA_CGROUP_PARENT ?? '';
  const processes = listProcesses().map(({ pid, args }) => `${pid} ${args.join(' ')}`);
  const cgroups = listCgroupFolders(own).filter((folder) => !folder.endsWith(own));
  return { ...takeBaseline(), processes, cgroups, files: kubeletDirs.flatMap(listFolder) };
}

/** Pids of processes that were started since and have a matching argument. */
function startedSince(before: ReturnType<typeof look>, argument: RegExp): number[] {
  const isOld = (pid: number) => before.processes.some((each) => each.startsWith(`${pid} `));
  return listProcesses().flatMap(({ pid, args }) =>
    !isOld(pid) && args.some((arg) => argument.test(arg)) ? [pid] : [],
  );
}

/** Waits until the suite has the driver, and pods of a test: the first one belongs to NodeFiles. */
async function untilPodsRun(before: ReturnType<typeof look>): Promise<void> {
  await expect.poll(() => startedSince(before, /^--driver-name=/), startup).toHaveLength(1);
  await expect.poll(() => startedSince(before, /^trap "exit 0" TERM/).length, startup).toBeGreaterThan(1);
}

describe('SIGKILL of the suite leaves nothing on the machine', () => {
  let suiteProcess: ChildProcess | undefined;
  afterEach(() => {
    suiteProcess?.kill('SIGKILL');
  });

  it.each(['of its tests', 'of the script that made its node'])('%s', { timeout: 240_000 }, async (which) => {
    const before = look();
    suiteProcess = spawn('bash', [script, ...suite], { cwd: repository, stdio: ['ignore', 'pipe', 'ignore'] });
    let output = '';
    suiteProcess.stdout?.on('data', (data) => {
      output += data;
    });
    const exited = once(suiteProcess, 'exit');
    const early = exited.then(() => Promise.reject(new Error(`the suite ended before it was killed:\n${output}`)));
    early.catch(() => undefined);
    await Promise.race([early, untilPodsRun(before)]);
    // Cgroups elsewhere would never be removed.
    expect(look().cgroups).toContainEqual(expect.stringMatching(`/netdra-node-${suiteProcess.pid}/.*/pod`));
    const killed = which === 'of its tests' ? startedSince(before, /\/\.bin\/vitest$/) : [suiteProcess.pid!];
    expect(killed).toHaveLength(1);
    process.kill(killed[0]!, 'SIGKILL');
    await exited;
    await expect.poll(() => look().processes, teardown).toEqual(before.processes);
    // A killed script leaves empty cgroups, which the next one removes.
    run('bash', [script, 'true'], { cwd: repository });
    // Its last process may still be ending.
    await expect.poll(look, teardown).toEqual(before);
  });
});
