import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { listProcesses } from '../../e2e/node/host-state.ts';

const script = fileURLToPath(new URL('../../scripts/in-node.sh', import.meta.url));

function inNode(command: string, input = '') {
  const { status, stdout, stderr } = spawnSync('bash', [script, 'bash', '-c', command], { input });
  return { status, stdout: stdout.toString(), stderr: stderr.toString() };
}

/** Starts a command on a node and waits until it printed `ready`. */
async function startInNode(command: string): Promise<{ child: ChildProcessWithoutNullStreams; output(): string }> {
  const child = spawn('bash', [script, 'bash', '-c', command]);
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString();
  });
  while (!output.includes('ready')) {
    if (child.exitCode !== null) throw new Error(`ended with ${child.exitCode} before it was ready`);
    await sleep(10);
  }
  return { child, output: () => output };
}

/** Processes whose command line holds a word that only the test at hand uses. */
const processesWith = (mark: string) => listProcesses().filter(({ args }) => args.some((arg) => arg.includes(mark)));

describe('scripts/in-node.sh', () => {
  it('hands on exit code, input, output and arguments', () => {
    expect(inNode('cat; echo "$0" >&2; exit 42', 'a b')).toEqual({ status: 42, stdout: 'a b', stderr: 'bash\n' });
    const { stdout } = spawnSync('bash', [script, 'printf', '<%s>', 'two words', '', '$HOME']);
    expect(stdout.toString()).toBe('<two words><><$HOME>');
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('hands %s on to the command, once', async (signal) => {
    const trap = `trap 'echo got-${signal}; sleep 0.3; exit 9' ${signal.slice(3)}`;
    const { child, output } = await startInNode(`${trap}; echo ready; while :; do sleep 0.05; done`);
    child.kill(signal);
    expect(await once(child, 'exit')).toEqual([9, null]);
    expect(output().match(/got-/g)).toHaveLength(1);
  });

  it('exits as a shell would when the command dies of a signal', () => {
    expect(inNode('kill -TERM $$').status).toBe(143);
  });

  it('ends what the command left running, and takes its cgroups away', () => {
    const { status, stdout } = inNode(`
      for folder in /sys/fs/cgroup /sys/fs/cgroup/*; do
        if [ -e "$folder/cgroup.procs" ]; then mkdir -p "$folder$NETDRA_CGROUP_PARENT/a/b"; break; fi
      done
      ls -d "$folder$NETDRA_CGROUP_PARENT/a/b"
      (setsid bash -c 'echo $BASHPID > '"$folder$NETDRA_CGROUP_PARENT/a/b/cgroup.procs"'; : left-running-mark; sleep 300') >/dev/null 2>&1 &
      until [ -n "$(cat $folder$NETDRA_CGROUP_PARENT/a/b/cgroup.procs)" ]; do sleep 0.05; done
      ip netns add left && ip link add left0 type veth peer left1 netns left && ip link show left0`);
    expect(status).toBe(0);
    expect(stdout).toContain('left0@');
    const folder = stdout.split('\n')[0] ?? '';
    expect(folder).toContain('/netdra-node-');
    expect(existsSync(join(folder, '..', '..'))).toBe(false);
    expect(processesWith('left-running-mark')).toEqual([]);
    expect(existsSync('/run/netns/left')).toBe(false);
  });
});
