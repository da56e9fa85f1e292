import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import packageInfo from '../../package.json' with { type: 'json' };
import { tempDir } from '../doubles/temp-dir.ts';

const mainPath = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

function netdra(args: string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [mainPath, ...args], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE, ...env },
  });
  return { status, stdout, stderr };
}

describe('netdra', () => {
  it('describes every flag of netdra run in its help', () => {
    const { status, stdout } = netdra(['run', '--help']);
    expect(status).toBe(0);
    const flags = stdout.split('\n').filter((line) => /^ {2}-/.test(line));
    expect(flags.length).toBeGreaterThan(15);
    // A flag without a description ends where its name and argument end.
    for (const flag of flags)
      expect(flag).toMatch(
        /^ {2}(-\w, )?--[a-z-]+( [<[][a-z/]+[>\]])? {2,}\S|^ {2}(-\w, )?--[a-z-]+( [<[][a-z/]+[>\]])?$/,
      );
    expect(stdout).toContain('--simulate <vfs>');
    expect(stdout).toContain('\nExit codes: 0: success; 1: the command failed');
  });

  it('prints its version', () => {
    expect(netdra(['--version'])).toMatchObject({ status: 0, stdout: `${packageInfo.version}\n` });
  });

  it.each([
    [['run'], /required option '--node-name <name>' not specified/],
    [['run', '--node-name=n', '--simulate=0'], /'--simulate <vfs>' argument '0' is invalid.*such as 8 or 2x4/],
    [['run', '--node-name=n', '--driver-name=A'], /'--driver-name <name>' argument 'A' is invalid/],
    [['run', '--node-name=n', '--metadata-layouts=v9'], /unknown: v9; known are v1, kep/],
    [['run', '--node-name=n', '--metadata-versions=v1'], /unknown: v1; known are v1beta1, v1alpha1/],
    [['run', '--node-name=n', '--start-gate=door'], /Allowed choices are auto, hook, file/],
    [['run', '--node-name=n', '--hookless-runtime-handlers=A'], /such as kata,kata-\*/],
    [
      ['run', '--node-name=n', '--cdi-dir=cdi'],
      /'--cdi-dir <path>' argument 'cdi' is invalid. an absolute path is needed/,
    ],
    [
      ['run', '--node-name=n', '--cni-bin-dirs=/opt/cni/bin,'],
      /argument '\/opt\/cni\/bin,' is invalid. an absolute path/,
    ],
    [['run', '--node-name=n', '--frobnicate'], /unknown option '--frobnicate'/],
    [['walk'], /unknown command 'walk'/],
    [[], /Usage: netdra/],
  ])('rejects %j with the reason and the usage exit code', (args, message) => {
    const { status, stderr } = netdra(args);
    expect(status).toBe(2);
    expect(stderr).toMatch(message);
  });

  it('exits silently when its reader closes the pipe, as in netdra doctor | head -1', async () => {
    const tool = spawn(process.execPath, [mainPath, 'seccomp'], { env: { PATH: process.env.PATH } });
    tool.stdout.destroy();
    let stderr = '';
    for await (const text of tool.stderr.setEncoding('utf8')) stderr += text;
    expect(stderr).toBe('');
    expect(tool.exitCode ?? (await once(tool, 'exit'))[0]).toBe(0);
  });

  it('prints in one line why its output cannot be written', () => {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(process.execPath, [mainPath, 'seccomp'], {
      encoding: 'utf8',
      stdio: ['ignore', full, 'pipe'],
      env: { PATH: process.env.PATH },
    });
    closeSync(full);
    expect(stderr).toBe('netdra: the output cannot be written: ENOSPC: no space left on device, write\n');
    expect(status).toBe(1);
  });

  it('rejects an empty environment variable that names a directory', () => {
    const { status, stderr } = netdra(['claims'], { NETDRA_STATE_DIR: '' });
    expect(stderr).toMatch("value '' from env 'NETDRA_STATE_DIR' is invalid. an absolute path is needed");
    expect(status).toBe(2);
  });

  it('takes the node name from the environment, and reports why it cannot start', () => {
    using dir = tempDir();
    const kubeconfig = join(dir.path, 'missing');
    const { status, stdout, stderr } = netdra(['run', `--kubeconfig=${kubeconfig}`], { NODE_NAME: 'n' });
    expect(status).toBe(1);
    expect(stderr).toMatch(`netdra: cannot start: cannot load kubeconfig ${kubeconfig}: ENOENT`);
    // Once: logs of a container have both streams.
    expect(stdout).toBe('');
  });

  // As the first process of a container it gets no signal that it does not handle.
  it('exits on a signal during startup', { timeout: 120_000 }, async () => {
    using dir = tempDir();
    // An API server that does not answer.
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const kubeconfig = join(dir.path, 'kubeconfig');
    const cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'c',
      users: [{ name: 'u', user: {} }],
      clusters: [{ name: 'k', cluster }],
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    };
    writeFileSync(kubeconfig, JSON.stringify(config));
    const dirs = ['kubelet-plugins', 'kubelet-registry', 'cdi'].map((name) => `--${name}-dir=${join(dir.path, name)}`);
    const args = [mainPath, 'run', '--node-name=n', `--kubeconfig=${kubeconfig}`, ...dirs];
    const driver = spawn(process.execPath, args, { stdio: 'ignore', env: { PATH: process.env.PATH } });
    const ended = once(driver, 'exit');
    await Promise.race([once(server, 'connection'), ended]);
    driver.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
    server.close();
  });
});
