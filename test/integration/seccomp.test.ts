import { spawnSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { profilePath } from '../../deploy/seccomp/profile.ts';
import { locateTools } from '../../e2e/node/tools.ts';
import { isMachineRoot } from '../doubles/machine-root.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const repo = fileURLToPath(new URL('../../', import.meta.url));
const { runc, cniBinDir } = locateTools();
let count = 0;

/** Runs a command in a container with the profile and the capabilities of the driver, on the machine's own files. */
function runConfined(args: string[], { env = {}, input = '' }: { env?: Record<string, string>; input?: string } = {}) {
  using dir = tempDir();
  const rootfs = join(dir.path, 'rootfs');
  mkdirSync(rootfs);
  const mounts: object[] = [];
  for (const name of readdirSync('/')) {
    const path = join('/', name);
    if (lstatSync(path).isSymbolicLink()) symlinkSync(readlinkSync(path), join(rootfs, name));
    else if (lstatSync(path).isDirectory()) {
      mounts.push({ destination: path, source: path, type: 'bind', options: ['rbind', 'rw'] });
    }
  }
  const id = `seccomp-${process.pid}-${++count}`;
  const capabilities = ['CAP_NET_ADMIN', 'CAP_SYS_ADMIN'];
  const config = {
    ociVersion: '1.0.2',
    root: { path: 'rootfs' },
    process: {
      cwd: repo,
      user: { uid: 0, gid: 0 },
      args,
      env: Object.entries({ PATH: process.env.PATH ?? '', ...env }).map(([name, value]) => `${name}=${value}`),
      noNewPrivileges: true,
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
    },
    mounts,
    linux: {
      namespaces: [{ type: 'mount' }],
      cgroupsPath: `${process.env.NETDRA_CGROUP_PARENT ?? ''}/${id}`,
      seccomp: JSON.parse(readFileSync(profilePath, 'utf8')),
    },
  };
  writeFileSync(join(dir.path, 'config.json'), JSON.stringify(config));
  const command = ['--root', join(dir.path, 'runc'), 'run', '--bundle', dir.path, id];
  const { status, stdout, stderr } = spawnSync(runc, command, {
    input,
    encoding: 'utf8',
    timeout: 60_000,
    killSignal: 'SIGKILL',
    // A program that cannot even end prints its stack for ever.
    maxBuffer: 1 << 20,
  });
  return { status, stdout, stderr };
}

describe.runIf(isMachineRoot)('deploy/seccomp/netdra.json, loaded by runc', () => {
  it('allows all system calls of the driver and of child processes that write sysfs or run programs', () => {
    expect(runConfined([process.execPath, 'src/main.ts', '--help'])).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('Usage: netdra'),
    });
    expect(runConfined([process.execPath, 'scripts/seccomp-exercise.ts'])).toMatchObject({ status: 0, stderr: '' });
  });

  // The Go runtime: without exit_group, for one, its programs cannot end.
  it('allows CNI plugins', () => {
    using state = tempDir();
    const ipam = { type: 'host-local', dataDir: state.path, ranges: [[{ subnet: '198.18.9.0/24' }]] };
    const env = {
      CNI_COMMAND: 'ADD',
      CNI_CONTAINERID: 'c',
      CNI_NETNS: '/var/run/netns/c',
      CNI_IFNAME: 'net1',
      CNI_PATH: '/',
    };
    const input = JSON.stringify({ cniVersion: '1.0.0', name: 'n', type: 'ipam', ipam });
    const { status, stdout } = runConfined([join(cniBinDir, 'host-local')], { env, input });
    expect(status).toBe(0);
    expect(JSON.parse(stdout).ips).toMatchObject([{ address: '198.18.9.2/24' }]);
    for (const plugin of ['dhcp', 'host-device', 'sbr', 'static', 'tuning', 'vrf']) {
      const version = runConfined([join(cniBinDir, plugin)], {
        env: { CNI_COMMAND: 'VERSION' },
        input: '{"cniVersion":"1.0.0"}',
      });
      expect(version, plugin).toMatchObject({ status: 0, stdout: expect.stringContaining('supportedVersions') });
    }
  });

  it('denies mounts, new namespaces and BPF with ENOSYS, even to a process with SYS_ADMIN', () => {
    const script = (call: string) => `
      const koffi = require('koffi');
      const call = koffi.load(null).func('long syscall(long number, long a, long b, long c)');
      const result = call(${call});
      console.log(Number(result), koffi.errno());`;
    // Linux on x86-64 and arm64: mount, unshare, bpf.
    const numbers = process.arch === 'x64' ? [165, 272, 321] : [40, 97, 280];
    for (const number of numbers) {
      const { stdout } = runConfined([process.execPath, '-e', script(`${number}, 0, 0, 0`)]);
      expect(stdout.trim(), `system call ${number}`).toBe('-1 38');
    }
  });
});
