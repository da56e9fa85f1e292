import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { builtDriver } from '../../e2e/node/built-driver.ts';
import type { Finding } from '../../src/cli/finding.ts';
import type { InventoryView } from '../../src/driver/devices/inventory-view.ts';
import { isMachineRoot } from '../doubles/machine-root.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const mainPath = await builtDriver();
const unprivileged = 65_534;
const { PATH, NODE_COMPILE_CACHE } = process.env;
const env = { PATH, NODE_COMPILE_CACHE };

interface LogLine {
  level: number;
  msg: string;
  reason?: string;
  retryMs?: number;
  err?: { message: string; code?: string };
}

describe('netdra run on a node with faults', () => {
  let dir: ReturnType<typeof tempDir>;
  beforeEach(() => {
    dir = tempDir();
    chmodSync(dir.path, 0o755);
    for (const name of ['plugins', 'registry', 'cdi', 'attributes']) mkdirSync(path(name));
    // Port 1 of a network of its own: nothing listens there.
    write('kubeconfig', kubeconfig('https://127.0.0.1:1'));
  });
  afterEach(() => dir[Symbol.dispose]());

  const path = (...parts: string[]) => join(dir.path, ...parts);
  function write(name: string, text: string): string {
    writeFileSync(path(name), text);
    return path(name);
  }

  /**
   * The program with simulated VFs, in a network of its own; as root that may not write to what others own.
   * @param before what the shell does before, in the same network
   */
  function commandLine(args: string[], before = ''): [string, string[]] {
    const node = [process.execPath, mainPath, 'run', '--node-name=n', '--simulate=1'];
    const dirs = [
      `--kubelet-plugins-dir=${path('plugins')}`,
      `--kubelet-registry-dir=${path('registry')}`,
      `--cdi-dir=${path('cdi')}`,
      `--nri-socket=${path('nri.sock')}`,
    ];
    const isNamed = args.some((arg) => arg.startsWith('--kubeconfig'));
    const given = isNamed ? args : [...args, `--kubeconfig=${path('kubeconfig')}`];
    const caps = ['--bounding-set=-dac_override,-dac_read_search', '--inh-caps=-dac_override,-dac_read_search'];
    const script = `ip link set lo up; ${before} exec "$@"`;
    const inside = ['sh', '-c', script, 'sh', 'setpriv', ...caps, ...node, ...dirs, ...given];
    return ['unshare', ['--net', ...inside]];
  }

  /** @returns exit code, and what people see: stderr */
  function start(args: string[], before?: string) {
    const [program, words] = commandLine(args, before);
    const options = { encoding: 'utf8' as const, env, timeout: 120_000 };
    const { status, stdout, stderr } = spawnSync(program, words, options);
    return { status, stderr, log: stdout };
  }

  function expectOneLine({ status, stderr, log }: ReturnType<typeof start>, message: RegExp): void {
    expect(stderr).toMatch(/^netdra: cannot start: [^\n]+\n$/);
    expect(stderr).toMatch(message);
    expect(status).toBe(1);
    // Logs of a container have both streams.
    expect(log).not.toContain('cannot start');
  }

  it('reports an invalid inventory policy', () => {
    const policy = write('policy', 'kind: Pod');
    expectOneLine(
      start([`--inventory-policy=${policy}`]),
      /inventory policy \S+ is invalid: .*kind: .*InventoryPolicy/,
    );
  });

  it('reports an invalid kubeconfig, and a missing kubeconfig outside of a cluster', () => {
    expectOneLine(start([`--kubeconfig=${path('none')}`]), /cannot load kubeconfig \S+\/none: ENOENT/);
    expectOneLine(start([`--kubeconfig=${write('broken', 'clusters: [')}`]), /cannot load kubeconfig \S+\/broken: /);
    const plain = write('plain', kubeconfig('http://127.0.0.1:1'));
    expectOneLine(start([`--kubeconfig=${plain}`]), /not encrypted/);
    const args = commandLine([]);
    args[1].splice(-1);
    const { status, stderr } = spawnSync(...args, { encoding: 'utf8', env });
    expect([status, stderr]).toEqual([
      1,
      'netdra: cannot start: no API server is known: this is not a pod with a service account (give --kubeconfig, or KUBECONFIG in the environment)\n',
    ]);
  });

  it.runIf(isMachineRoot).each([
    ['plugins', '--kubelet-plugins-dir', 'plugins/sriov.netdra.dev, which would be created in \\S+/plugins'],
    ['registry', '--kubelet-registry-dir', 'registry'],
    ['cdi', '--cdi-dir', 'cdi'],
  ])('reports that it lacks permission to write to its directory %s', (name, flag, shown) => {
    chownSync(path(name), unprivileged, unprivileged);
    const line = new RegExp(`cannot write to \\S+/${shown} \\(EACCES\\) \\(.*${flag}\\)\n$`);
    expectOneLine(start([]), line);
  });

  it.runIf(isMachineRoot)('reports a missing permission to write to the directory given by --state-dir', () => {
    chownSync(path('attributes'), unprivileged, unprivileged);
    const state = start([`--state-dir=${path('attributes', 'state')}`]);
    expectOneLine(
      state,
      /cannot write to \S+\/state, which would be created in \S+\/attributes \(EACCES\) .*--state-dir/,
    );
  });

  it('reports that its port is taken', () => {
    const other = `require("net").createServer().listen(9797, () => require("fs").writeFileSync("${path('up')}", ""))`;
    const wait = `until [ -e '${path('up')}' ]; do sleep 0.1; done`;
    // What goes on in the background ends with the network's last process of ours.
    const before = `'${process.execPath}' -e '${other}' >/dev/null 2>&1 & other=$!; (tail --pid=$$ -f /dev/null; kill $other) >/dev/null 2>&1 & ${wait};`;
    expectOneLine(start(['--http-address=:9797'], before), /cannot listen on :9797: .*EADDRINUSE/);
  });

  /** The program without simulated VFs, in a mount namespace of its own in which sysfs is hidden at first. */
  function withoutSysfs(): [string, string[]] {
    const [program, words] = commandLine([], 'mount -t tmpfs none /sys;');
    return [program, ['--mount', ...words.filter((word) => word !== '--simulate=1')]];
  }

  it('keeps running if devices cannot be listed, and publishes them once they can', async () => {
    const [program, words] = withoutSysfs();
    const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = once(child, 'exit');
    const lines: LogLine[] = [];
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line)));
    try {
      const said = (msg: string) => lines.filter((line) => line.msg === msg);
      await expect.poll(() => said('driver started').length, { timeout: 60_000 }).toBe(1);
      expect(said('cannot list devices')).toMatchObject([
        {
          level: 50,
          err: { message: expect.stringContaining('cannot read /sys/bus/pci/devices'), code: 'sysfs-unreadable' },
        },
      ]);
      // Claims are served: the driver connects to the runtime.
      await expect.poll(() => said('cannot connect to the runtime').length, { timeout: 60_000 }).toBe(1);
      // It asks the API server for the slices of the node as soon as it knows what they should be.
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      expect(said('cannot publish ResourceSlices')).toEqual([]);
      execFileSync('nsenter', [`--mount=/proc/${child.pid}/ns/mnt`, 'umount', '/sys']);
      const published = () => said('cannot publish ResourceSlices').length;
      await expect.poll(published, { timeout: 60_000 }).toBeGreaterThan(0);
      expect(said('cannot list devices')).toHaveLength(1);
    } finally {
      child.kill('SIGTERM');
    }
    expect(await exit).toEqual([0, null]);
  }, 180_000);

  it('keeps running without API server and runtime, and logs both failures', async () => {
    const [program, words] = commandLine(['--driver-name=nic.example.com']);
    const child: ChildProcess = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const exit = once(child, 'exit');
    const lines: LogLine[] = [];
    let stderr = '';
    child.stderr?.setEncoding('utf8').on('data', (text) => (stderr += text));
    if (child.stdout === null) throw new Error('no standard output');
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line)));
    try {
      const said = (msg: string) => lines.filter((line) => line.msg === msg);
      const offered = () => said('cannot publish ResourceSlices');
      await expect.poll(() => offered().length, { timeout: 60_000 }).toBeGreaterThan(1);
      const reason =
        /^GET \/apis\/resource\.k8s\.io\/v1\/resourceslices: no answer from the API server: connect ECONNREFUSED 127\.0\.0\.1:1$/;
      const [first, second] = offered();
      expect(first).toMatchObject({ level: 50, reason: expect.stringMatching(reason), retryMs: expect.any(Number) });
      expect(second?.retryMs).toBeGreaterThan(first?.retryMs ?? Infinity);
      expect(said('cannot connect to the runtime')).toMatchObject([
        { level: 40, err: { message: expect.stringMatching(/^cannot connect to \S+\/nri\.sock: .*ENOENT/) } },
      ]);
      // The tools beside it have its settings.
      const tool = (name: string) => {
        const command = [process.execPath, mainPath, name, '-o', 'json', `--kubelet-plugins-dir=${path('plugins')}`];
        return spawnSync('nsenter', [`--net=/proc/${child.pid}/ns/net`, ...command], { encoding: 'utf8' });
      };
      const { devices } = JSON.parse(tool('inventory').stdout) as InventoryView;
      expect(devices.map(({ attributes }) => attributes.simulated)).toEqual([{ bool: true }]);
      // Asked in another network, in which a scan would not find the interfaces: the driver answers.
      const inventory = [mainPath, 'inventory', '-o', 'json', `--kubelet-plugins-dir=${path('plugins')}`];
      const elsewhere = spawnSync(process.execPath, inventory, { encoding: 'utf8' });
      expect(JSON.parse(elsewhere.stdout).devices).toEqual(devices);
      expect(devices[0]?.interfaceName).toBeDefined();
      const findings = JSON.parse(tool('doctor').stdout) as Finding[];
      const messageOf = (name: string) => findings.find(({ check }) => check === name)?.message;
      expect(messageOf('SR-IOV')).toBe('no card supports it; VFs are simulated');
      expect(messageOf('NRI')).toContain(path('nri.sock'));
      expect(messageOf('plugin directory')).toContain(path('plugins', 'nic.example.com'));
    } finally {
      child.kill('SIGTERM');
    }
    expect(await exit).toEqual([0, null]);
    expect(stderr).toBe('');
  }, 180_000);

  it('starts although its previous start was interrupted before the state store had tables', async () => {
    mkdirSync(path('state'));
    write('state/state.db', '');
    const [program, words] = commandLine([`--state-dir=${path('state')}`]);
    const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = once(child, 'exit');
    const started = (async () => {
      for await (const line of createInterface({ input: child.stdout }))
        if ((JSON.parse(line) as LogLine).msg === 'driver started') child.kill('SIGTERM');
    })();
    expect(await exit).toEqual([0, null]);
    await started;
  }, 180_000);

  it('logs at debug level after SIGUSR2, and at the configured level again after a second SIGUSR2', async () => {
    const [program, words] = commandLine(['--log-level=error']);
    const child = spawn(program, words, { env: { PATH: process.env.PATH }, stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = once(child, 'exit');
    const lines: LogLine[] = [];
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line)));
    const changes = () => lines.filter(({ msg }) => msg === 'log level changed');
    try {
      await expect.poll(() => lines.length, { timeout: 60_000 }).toBeGreaterThan(0);
      expect(lines.filter(({ level }) => level < 50)).toEqual([]);
      // What the output lacks is in memory.
      const log = () => {
        const args = [mainPath, 'log', `--kubelet-plugins-dir=${path('plugins')}`];
        return spawnSync(process.execPath, args, { encoding: 'utf8' });
      };
      await expect.poll(() => log().stdout, { timeout: 60_000 }).toMatch(/^\{"level":20,.*\}$/m);
      expect(log()).toMatchObject({ status: 0, stderr: '' });
      child.kill('SIGUSR2');
      await expect.poll(changes).toMatchObject([{ level: 30, to: 'debug' }]);
      await expect.poll(() => lines.filter(({ level }) => level === 20), { timeout: 60_000 }).not.toEqual([]);
      child.kill('SIGUSR2');
      await expect.poll(changes).toMatchObject([{ to: 'debug' }, { level: 30, to: 'error' }]);
      const before = lines.length;
      await expect.poll(() => lines.length, { timeout: 60_000 }).toBeGreaterThan(before);
      expect(lines.slice(before).filter(({ level }) => level < 50)).toEqual([]);
    } finally {
      child.kill('SIGTERM');
    }
    expect(await exit).toEqual([0, null]);
  }, 180_000);
});

function kubeconfig(server: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'c',
    clusters: [{ name: 'c', cluster: { server } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
  });
}
