import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Containerd, ContainerdError, startContainerd } from '../../e2e/node/containerd.ts';
import { CriError } from '../../e2e/node/cri.ts';
import { listLeftovers, takeBaseline } from '../../e2e/node/leftovers.ts';
import { exec, type PodSpec, removePod, runContainer, runPod, waitForExit } from '../../e2e/node/pod.ts';
import { containerdSeries } from '../../e2e/node/tools.ts';
import { createPlugin } from '../../nri/index.ts';

const newDir = () => join(mkdtempSync(join(tmpdir(), 'ctrd-')), 'c');
const podSpec = (name: string, more: Partial<PodSpec> = {}): PodSpec => ({
  name,
  namespace: 'default',
  uid: randomUUID(),
  ...more,
});

/** Writes a CDI spec with one device that mounts a file read-only. @returns the device's full name */
function writeMountSpec(specDir: string, name: string, hostPath: string, containerPath: string): string {
  const mounts = [{ hostPath, containerPath, options: ['bind', 'ro', 'nosuid', 'nodev'] }];
  const devices = [{ name, containerEdits: { mounts } }];
  const spec = { cdiVersion: '0.6.0', kind: 'test.netdra.dev/file', devices };
  writeFileSync(join(specDir, `test.netdra.dev-${name}.json`), JSON.stringify(spec));
  return `test.netdra.dev/file=${name}`;
}

interface IpAddress {
  local: string;
  scope: string;
}

function globalAddresses(netnsPath: string, link: string): string[] {
  const output = execFileSync('nsenter', [`--net=${netnsPath}`, 'ip', '-j', 'addr', 'show', 'dev', link]);
  const [{ addr_info: addresses = [] } = {}] = JSON.parse(output.toString()) as { addr_info: IpAddress[] }[];
  return addresses.filter(({ scope }) => scope === 'global').map(({ local }) => local);
}

describe.each(containerdSeries)('containerd %s', (version) => {
  let containerd: Containerd;
  const before = takeBaseline();

  beforeAll(async () => {
    containerd = await startContainerd({ version, dir: newDir() });
  });
  afterAll(async () => {
    await containerd?.[Symbol.asyncDispose]();
  });

  it('is of the series that was asked for', () => {
    expect(containerd.version.startsWith(version === '1.7' ? '1.7.' : '2.')).toBe(true);
  });

  it('gives a pod an address of each family, and takes all of it back', async () => {
    const { cri } = containerd;
    const sandbox = await runPod(cri, podSpec('addresses'));
    expect(sandbox.ips).toHaveLength(2);
    expect(globalAddresses(sandbox.netnsPath, 'eth0').sort()).toEqual(sandbox.ips.toSorted());
    expect(sandbox.ips[0]).toMatch(/^10\.201\.\d+\.\d+$/);
    expect(sandbox.ips[1]).toMatch(/^fd00:c9:/);
    await removePod(cri, sandbox);
    expect(existsSync(sandbox.netnsPath)).toBe(false);
  });

  it('runs containers and commands in them', async () => {
    const { cri } = containerd;
    const sandbox = await runPod(cri, podSpec('commands'));
    const id = await runContainer(cri, sandbox, { name: 'main', env: { COLOUR: 'green' } });
    expect(await exec(cri, id, ['cat', '/etc/passwd'])).toEqual({
      stdout: 'root:x:0:0:root:/root:/bin/sh\n',
      stderr: '',
      exitCode: 0,
    });
    expect(await exec(cri, id, ['sh', '-c', 'echo $COLOUR >&2; exit 3'])).toEqual({
      stdout: '',
      stderr: 'green\n',
      exitCode: 3,
    });
    expect(readFileSync(`/proc/${await containerd.pidOf(id)}/cmdline`, 'utf8')).toContain('sleep 3600');
    await removePod(cri, sandbox);
  });

  it('tells the exit code of a container that ended, and keeps what it printed', async () => {
    const { cri } = containerd;
    const sandbox = await runPod(cri, podSpec('init'));
    const id = await runContainer(cri, sandbox, { name: 'init', command: ['sh', '-c', 'echo ready; exit 4'] });
    expect(await waitForExit(cri, id)).toBe(4);
    expect(readFileSync(join(sandbox.config.logDirectory ?? '', 'init.log'), 'utf8')).toContain('stdout F ready');
    await removePod(cri, sandbox);
  });

  it('mounts what a CDI device names, read-only, also below /var/run', async () => {
    const { cri } = containerd;
    const hostPath = join(containerd.dir, 'told.json');
    writeFileSync(hostPath, '{"told":true}');
    const path = '/var/run/told/told.json';
    const device = writeMountSpec(containerd.cdiSpecDirs[0] ?? '', 'told', hostPath, path);
    const sandbox = await runPod(cri, podSpec('cdi'));
    const id = await runContainer(cri, sandbox, { name: 'with', cdiDevices: [device] });
    expect((await exec(cri, id, ['cat', path])).stdout).toBe('{"told":true}');
    const write = await exec(cri, id, ['sh', '-c', `echo lies > ${path}`]);
    expect(write).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('Read-only file system') });
    expect(readFileSync(hostPath, 'utf8')).toBe('{"told":true}');

    const without = await runContainer(cri, sandbox, { name: 'without' });
    expect((await exec(cri, without, ['cat', path])).exitCode).toBe(1);
    await removePod(cri, sandbox);
  });

  it('refuses a container whose CDI mount has no source, until it is there', async () => {
    const { cri } = containerd;
    const hostPath = join(containerd.dir, 'late.json');
    const device = writeMountSpec(containerd.cdiSpecDirs[0] ?? '', 'late', hostPath, '/late.json');
    const sandbox = await runPod(cri, podSpec('late'));
    const start = () => runContainer(cri, sandbox, { name: 'main', cdiDevices: [device] });
    await expect(start()).rejects.toThrow(/late\.json.*no such file or directory/s);
    expect(existsSync(hostPath)).toBe(false);
    writeFileSync(hostPath, 'here');
    expect((await exec(cri, await start(), ['cat', '/late.json'])).stdout).toBe('here');
    await removePod(cri, sandbox);
  });

  it('refuses a container with a CDI device that nobody described', async () => {
    const { cri } = containerd;
    const sandbox = await runPod(cri, podSpec('unknown'));
    const start = runContainer(cri, sandbox, { name: 'main', cdiDevices: ['test.netdra.dev/file=nobody'] });
    await expect(start).rejects.toThrow(CriError);
    await expect(start).rejects.toThrow(/nobody/);
    await removePod(cri, sandbox);
  });

  it('listens for NRI plugins', async () => {
    expect(statSync(containerd.nriSocketPath).isSocket()).toBe(true);
    await new Promise<void>((resolve, reject) => {
      const socket = connect(containerd.nriSocketPath, () => {
        socket.destroy();
        resolve();
      }).once('error', reject);
    });
  });

  it('puts a pod on the network of the host when told', async () => {
    const { cri } = containerd;
    const sandbox = await runPod(cri, podSpec('host', { hostNetwork: true }));
    expect(sandbox.ips).toEqual([]);
    expect(statSync(sandbox.netnsPath).ino).toBe(statSync('/proc/self/ns/net').ino);
    await removePod(cri, sandbox);
  });

  it.each(['SIGTERM', 'SIGKILL'] as const)('comes back after %s with its pods running', async (signal) => {
    const { cri, pid } = containerd;
    const sandbox = await runPod(cri, podSpec('lasting'));
    const id = await runContainer(cri, sandbox, { name: 'main' });
    const hostname = (await exec(cri, id, ['cat', '/proc/1/cmdline'])).stdout;
    await containerd.restart(signal);
    expect(containerd.pid).not.toBe(pid);
    expect((await exec(cri, id, ['cat', '/proc/1/cmdline'])).stdout).toBe(hostname);
    await removePod(cri, sandbox);
  });

  it('leaves nothing behind, though pods run when it goes', async () => {
    const { cri } = containerd;
    const sandbox = await runPod(cri, podSpec('forgotten'));
    await runContainer(cri, sandbox, { name: 'main' });
    const running = listLeftovers(containerd, before).map((line) => line.split(' ')[0]);
    expect(new Set(running)).toEqual(new Set(['process', 'mount', 'network', 'link', 'CNI', 'cgroup']));
    await containerd[Symbol.asyncDispose]();
    expect(listLeftovers(containerd, before)).toEqual([]);
    expect(existsSync(containerd.dir)).toBe(false);
  });

  it('leaves nothing behind after its daemon was killed', async () => {
    const doomed = await startContainerd({ version, dir: newDir() });
    const sandbox = await runPod(doomed.cri, podSpec('orphan'));
    await runContainer(doomed.cri, sandbox, { name: 'main' });
    await doomed.stop('SIGKILL');
    await doomed[Symbol.asyncDispose]();
    // The kernel ends a network namespace, and the links in it, some time after its last process.
    await expect.poll(() => listLeftovers(doomed, before), { timeout: 10_000 }).toEqual([]);
  });

  it('tells a plugin how long it may take, and leaves nothing behind of a sandbox that one refused', async () => {
    const strict = await startContainerd({ version, dir: newDir(), requestTimeoutMs: 777 });
    const runPodSandbox = () => Promise.reject(new Error('not today'));
    await using plugin = createPlugin({
      name: 'refusing',
      index: '10',
      socketPath: strict.nriSocketPath,
      handlers: { runPodSandbox: (_, { timeoutMs }) => (timeoutMs <= 777 ? runPodSandbox() : undefined) },
    });
    plugin.start();
    await plugin.whenConnected();
    await expect(runPod(strict.cri, podSpec('refused'))).rejects.toThrow(/NRI RunPodSandbox failed.*not today/);
    await strict[Symbol.asyncDispose]();
    await expect.poll(() => listLeftovers(strict, before), { timeout: 10_000 }).toEqual([]);
  });

  it('runs containers where the file system cannot hold an overlay', async () => {
    const base = mkdtempSync(join(tmpdir(), 'overlay-'));
    const [lower, upper, work, merged] = ['lower', 'upper', 'work', 'merged'].map((name) => join(base, name));
    for (const folder of [lower, upper, work, merged]) mkdirSync(folder ?? '');
    const options = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
    execFileSync('mount', ['-t', 'overlay', '-o', options, 'overlay', merged ?? '']);
    try {
      await using nested = await startContainerd({ version, dir: join(merged ?? '', 'c') });
      expect(readFileSync(join(nested.dir, 'config.toml'), 'utf8')).toContain('snapshotter = "native"');
      const id = await runContainer(nested.cri, await runPod(nested.cri, podSpec('native')), { name: 'main' });
      expect((await exec(nested.cri, id, ['echo', 'here'])).stdout).toBe('here\n');
    } finally {
      execFileSync('umount', [merged ?? '']);
    }
  });

  it('says why it did not start, with the end of its log', async () => {
    const dir = newDir();
    mkdirSync(dir);
    // containerd wants a folder here.
    writeFileSync(join(dir, 'state'), '');
    const failed = startContainerd({ version, dir });
    await expect(failed).rejects.toThrow(ContainerdError);
    await expect(failed).rejects.toThrow(/does not serve; its log ends.*not a directory/s);
    expect(existsSync(dir)).toBe(false);
  });
});

describe('containerds of both series on one node', () => {
  it('have pods that do not get in each other’s way', async () => {
    const before = takeBaseline();
    await using stack = new AsyncDisposableStack();
    const start = async (version: (typeof containerdSeries)[number]) =>
      stack.use(await startContainerd({ version, dir: newDir() }));
    const both = await Promise.all(containerdSeries.map(start));
    const sandboxes = await Promise.all(both.map(({ cri }) => runPod(cri, podSpec('neighbour'))));
    expect(new Set(sandboxes.flatMap(({ ips }) => ips)).size).toBe(4);
    await both[0]?.[Symbol.asyncDispose]();
    const id = await runContainer(both[1]!.cri, sandboxes[1]!, { name: 'main' });
    expect((await exec(both[1]!.cri, id, ['true'])).exitCode).toBe(0);
    await stack.disposeAsync();
    for (const each of both) expect(listLeftovers(each, before)).toEqual([]);
  });

  it('refuses to start on the machine itself', async () => {
    const dir = newDir();
    const failed = startContainerd({ version: '2.1', dir, env: {} });
    await expect(failed).rejects.toMatchObject({ code: 'not-in-node', hint: expect.stringContaining('in-node.sh') });
    rmSync(join(dir, '..'), { recursive: true });
  });
});
