import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { listImageFiles, makeImageFiles } from '../../../deploy/image/image-files.ts';
import {
  type Architecture,
  architectures,
  commandPath,
  gatePath,
  nodeEnv,
  nodeFlags,
  nodePath,
  programPath,
} from '../../../deploy/image/layout.ts';
import packageInfo from '../../../package.json' with { type: 'json' };
import { repository as repo } from '../../../scripts/run-command.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const names = Object.keys(architectures) as Architecture[];
const architecture = names.find((name) => architectures[name] === process.arch) ?? 'amd64';

/** A file in the place of netdra-gate. */
function gateStandIn() {
  const dir = tempDir();
  const program = join(dir.path, 'netdra-gate');
  writeFileSync(program, '');
  return { program, [Symbol.dispose]: () => dir[Symbol.dispose]() };
}

describe('makeImageFiles', () => {
  it('builds a program that needs no other files and no environment variables', async () => {
    using dir = tempDir();
    using gate = gateStandIn();
    await makeImageFiles({ outDir: dir.path, architecture, gateProgram: gate.program });
    const run = (...args: string[]) =>
      spawnSync(process.execPath, [join(dir.path, programPath), ...args], { cwd: '/', env: {}, encoding: 'utf8' });
    expect(run('run', '--help')).toMatchObject({ status: 0, stdout: expect.stringContaining('--node-name') });
    expect(run('run', '--log-level=loud')).toMatchObject({ status: 2, stderr: expect.stringContaining('--log-level') });
    // For `kubectl exec`. There is neither a shell nor `env`.
    const command = join(dir.path, commandPath);
    expect(resolve(dirname(command), readlinkSync(command))).toBe(join(dir.path, programPath));
    expect(statSync(command).mode & 0o111).toBe(0o111);
    expect(readFileSync(command, 'utf8').split('\n')[0]).toBe(`#!${nodePath}`);
    const files = listImageFiles(dir.path);
    expect(files.find(({ path }) => path === '/opt/netdra/cache/*')?.sizeBytes).toBeGreaterThan(100_000);
    expect(files.map(({ path }) => path).filter((path) => path.endsWith('.node'))).toEqual([
      '/opt/netdra/lib/koffi.node',
      '/opt/netdra/lib/netlink.node',
    ]);
    expect(statSync(join(dir.path, gatePath)).mode & 0o777).toBe(0o755);
    // Where the program looks for it.
    expect(resolve(join(dir.path, programPath), '../../bin/netdra-gate')).toBe(join(dir.path, gatePath));
    expect(files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)).toBeLessThan(15_000_000);
    const licences = readFileSync(join(dir.path, 'opt/netdra/THIRD-PARTY-LICENSES'), 'utf8');
    for (const name of Object.keys(packageInfo.dependencies))
      expect(licences).toMatch(new RegExp(`^${name} [\\d.]+: `, 'm'));
  }, 60_000);

  it('rejects a processor architecture without native packages, and says how to get them', async () => {
    using dir = tempDir();
    const modulesDir = join(dir.path, 'node_modules');
    mkdirSync(join(modulesDir, 'koffi'), { recursive: true });
    writeFileSync(join(modulesDir, 'koffi/package.json'), '{}');
    await expect(
      makeImageFiles({ outDir: join(dir.path, 'image'), architecture: 'arm64', modulesDir, gateProgram: '' }),
    ).rejects.toMatchObject({ code: 'package-missing', hint: expect.stringContaining('--cpu=arm64') });
  }, 60_000);
});

describe('the Dockerfile', () => {
  const text = readFileSync(join(repo, 'Dockerfile'), 'utf8');

  it('starts the built program', () => {
    const command = [nodePath, ...nodeFlags, `/${programPath}`];
    expect(text).toContain(`COPY --from=runtime /usr/local/bin/node ${nodePath}`);
    expect(text).toContain(`ENTRYPOINT ${JSON.stringify(command).replaceAll(',', ', ')}`);
    const env = Object.entries(nodeEnv()).map(([name, value]) => `${name}=${value}`);
    expect(text).toContain(`ENV ${env.join(' ')}`);
  });

  it('copies only existing files that .dockerignore allows', () => {
    const allowed = readFileSync(join(repo, '.dockerignore'), 'utf8').match(/(?<=^!).+/gm) ?? [];
    const copied = [...text.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, sources = '']) => sources.split(' '));
    expect([...copied].sort()).toEqual([...allowed].sort());
    for (const path of copied) expect(existsSync(join(repo, path)), path).toBe(true);
  });
});
