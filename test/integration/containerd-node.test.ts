import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { listCgroupFolders, listProcesses } from '../../e2e/node/host-state.ts';

const script = fileURLToPath(new URL('../../scripts/in-node.sh', import.meta.url));
const bootstrap = fileURLToPath(new URL('../../scripts/bootstrap.sh', import.meta.url));
const cgroupParent = process.env.NETDRA_CGROUP_PARENT ?? '';

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

async function until(condition: () => boolean, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`not so within ${timeoutMs} ms: ${condition}`);
    await sleep(20);
  }
}

describe('scripts/in-node.sh', () => {
  it('hands on exit code, input, output and arguments', () => {
    expect(inNode('cat; echo "$0" >&2; exit 42', 'a b')).toEqual({ status: 42, stdout: 'a b', stderr: 'bash\n' });
    const { stdout } = spawnSync('bash', [script, 'printf', '<%s>', 'two words', '', '$HOME']);
    expect(stdout.toString()).toBe('<two words><><$HOME>');
  });

  it('gives the command a network with nothing but loopback, which is up', () => {
    const links = 'ip -j addr | tr -d " \\n"; ls -x /sys/class/net';
    const { stdout } = inNode(links);
    expect(stdout).toContain('"operstate":"UNKNOWN"');
    expect(stdout).toContain('"local":"127.0.0.1"');
    expect(stdout.trimEnd().endsWith(']lo')).toBe(true);
  });

  it('gives the command a /run, a /var/lib and a temporary folder of its own', () => {
    const name = `own-${process.pid}`;
    const { stdout } = inNode(
      `touch /run/${name} /var/lib/${name} $TMPDIR/${name}; ls /run /var/run/ /var/lib $TMPDIR`,
    );
    expect(stdout.split('\n').filter((line) => line === name)).toHaveLength(4);
    for (const folder of ['/run', '/var/lib', tmpdir()]) expect(existsSync(join(folder, name))).toBe(false);
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

  it('leaves no process when it is killed itself, and the next node sweeps up its cgroups', async () => {
    const { child, output } = await startInNode(`
      for folder in /sys/fs/cgroup /sys/fs/cgroup/*; do
        if [ -e "$folder/cgroup.procs" ]; then mkdir -p "$folder$NETDRA_CGROUP_PARENT/c"; break; fi
      done
      echo "$NETDRA_CGROUP_PARENT"; : killed-script-mark; echo ready; while :; do sleep 0.05; done`);
    const cgroup = output().split('\n')[0] ?? '';
    expect(cgroup.startsWith(`${cgroupParent}/netdra-node-`)).toBe(true);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await until(() => processesWith('killed-script-mark').length === 0, 8_000);
    expect(listCgroupFolders(cgroup)).not.toEqual([]);
    expect(inNode('true').status).toBe(0);
    expect(listCgroupFolders(cgroup)).toEqual([]);
  });

  it('says that it needs root', () => {
    const bin = mkdtempSync(join(tmpdir(), 'bin-'));
    writeFileSync(join(bin, 'id'), '#!/bin/sh\necho 1000\n');
    chmodSync(join(bin, 'id'), 0o755);
    const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` };
    for (const args of [
      [script, 'true'],
      [bootstrap, '--root', 'true'],
    ]) {
      const { status, stderr } = spawnSync('bash', args, { env });
      expect(status).toBe(1);
      expect(stderr.toString()).toMatch(/needs root.*\n.*sudo -s/);
    }
  });
});

describe('scripts/bootstrap.sh', () => {
  it('runs the command in the top folder with the Node.js of the project', () => {
    const { status, stdout } = spawnSync('bash', [bootstrap, 'node', '-p', 'process.version + " " + process.cwd()'], {
      cwd: tmpdir(),
    });
    expect(status).toBe(0);
    const [version, cwd] = stdout.toString().trim().split(' ');
    expect(version).toMatch(/^v(2[4-9]|[3-9]\d)\./);
    expect(existsSync(join(cwd ?? '', 'package-lock.json'))).toBe(true);
  });
});
