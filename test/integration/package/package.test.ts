import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Finding } from '../../../src/app/tools/finding.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { findBrokenLinks } from '../../unit/docs/links.ts';
import { makePackedApp, type PackedApp } from './packed-app.ts';

const repo = fileURLToPath(new URL('../../..', import.meta.url));
const manifest = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8'));
const names = ['kubeletplugin', 'metadata', 'resourceslice', 'nri', 'nri/testing'];

describe('the package', () => {
  let dir: ReturnType<typeof tempDir>;
  let app: PackedApp;
  beforeAll(() => {
    dir = tempDir();
    app = makePackedApp(dir.path, ['@types/node', 'typescript']);
  }, 60_000);
  afterAll(() => dir[Symbol.dispose]());

  it('is built before it is packed', () => {
    expect(manifest.scripts).toMatchObject({
      prepack: 'npm run build',
      build: expect.stringMatching(/scripts\/build-library\.sh$/),
    });
    expect(Object.keys(manifest.exports)).toEqual(names.map((name) => `./${name}`));
  });

  it('has the example driver that the guide for authors shows, in less than 100 lines', () => {
    const source = readFileSync(join(repo, 'examples/driver/driver.ts'), 'utf8');
    expect(readFileSync(join(repo, 'docs/driver-authors.md'), 'utf8')).toContain(`\`\`\`ts\n${source}\`\`\`\n`);
    expect(source.trimEnd().split('\n').length).toBeLessThan(100);
  });

  it('can be imported by plain Node.js, and does nothing by that', () => {
    const imports = names.map((name) => `import('netdra/${name}')`).join(', ');
    const main = join(app.dir, 'main.js');
    writeFileSync(
      main,
      `const all = await Promise.all([${imports}]);
       console.log(JSON.stringify(all.map((module) => Object.keys(module))));`,
    );
    const [kubeletplugin, metadata, resourceslice, nri, testing] = JSON.parse(
      execFileSync(process.execPath, [main], { encoding: 'utf8' }),
    );
    expect(kubeletplugin).toEqual(expect.arrayContaining(['startKubeletPlugin', 'ResourceApi', 'systemClock']));
    expect(metadata).toEqual(expect.arrayContaining(['ClaimMetadata', 'CdiSpecs', 'layouts', 'readMetadataFile']));
    expect(resourceslice).toEqual(expect.arrayContaining(['SlicePublisher', 'createSliceApi']));
    expect(nri).toEqual(expect.arrayContaining(['createPlugin']));
    expect(testing).toEqual(expect.arrayContaining(['FakeRuntime']));
  });

  it('finds its wire contracts where it was unpacked', () => {
    const main = join(app.dir, 'runtime.js');
    writeFileSync(
      main,
      `import { FakeRuntime } from 'netdra/nri/testing';
       await using runtime = new FakeRuntime({ socketPath: ${JSON.stringify(join(app.dir, 'nri.sock'))} });
       await runtime.start();`,
    );
    execFileSync(process.execPath, [main]);
  });

  it('has the command netdra, which needs none of our sources', () => {
    // It installs nothing and asks no registry; npm's own warnings are about the machine.
    const options = ['--no', '--offline', '--loglevel=error', '--cache', join(dir.path, 'npm-cache')];
    const npx = (...args: string[]) =>
      spawnSync('npx', [...options, '--', 'netdra', ...args], { cwd: app.dir, encoding: 'utf8' });
    const nowhere = join(app.dir, 'nowhere');
    const flags = ['--kubelet-plugins-dir', '--kubelet-registry-dir', '--cdi-dir', '--nri-socket', '--cri-socket'];
    // It needs the native packages, the API client and the wire contracts of the runtime.
    const doctor = npx('doctor', '-o', 'json', ...flags.map((flag) => `${flag}=${nowhere}`));
    expect([doctor.status, doctor.stderr]).toEqual([1, '']);
    const findings: Finding[] = JSON.parse(doctor.stdout);
    expect(findings.find(({ check }) => check === 'NRI')).toMatchObject({
      ...{ level: 'problem', message: `off: there is no socket ${nowhere}` },
    });
    expect(findings.find(({ check }) => check === 'CDI directory')).toMatchObject({ level: 'problem' });
    const claims = npx('claims', `--kubelet-plugins-dir=${nowhere}`);
    expect(claims).toMatchObject({ status: 0, stdout: 'no claims are prepared\n', stderr: '' });
    expect(npx('run', '--node-name=n', '--log-level=loud')).toMatchObject({
      ...{ status: 2, stderr: expect.stringContaining("option '--log-level <level>' argument 'loud' is invalid") },
    });
    expect(npx('--version')).toMatchObject({ status: 0, stdout: `${manifest.version}\n` });
    const plugin = spawnSync('npx', [...options, '--', 'kubectl-netdra', '--help'], { cwd: app.dir, encoding: 'utf8' });
    expect(plugin).toMatchObject({ status: 0, stdout: expect.stringMatching(/^Usage: kubectl netdra /) });
    // What older versions of Node.js cannot parse is behind a check of the version.
    const command = readFileSync(join(app.packageDir, manifest.bin.netdra), 'utf8');
    const older = command.replace('process.versions.node', "'22.19.0'");
    writeFileSync(join(app.packageDir, dirname(manifest.bin.netdra), 'older.mjs'), older);
    const args = [join(app.packageDir, dirname(manifest.bin.netdra), 'older.mjs'), 'doctor'];
    expect(spawnSync(process.execPath, args, { encoding: 'utf8' })).toMatchObject({
      ...{ status: 1, stdout: '', stderr: 'netdra: Node.js 24 or newer is needed, this is 22.19.0\n' },
    });
    expect([...command.matchAll(/^import .* from '([^']+)'/gm)].map(([, from]) => from)).toEqual(['node:module']);
    const licences = readFileSync(join(app.packageDir, dirname(manifest.bin.netdra), 'THIRD-PARTY-LICENSES'), 'utf8');
    expect(licences).toMatch(/^commander [\d.]+: MIT$/m);
    expect(statSync(join(app.packageDir, manifest.bin.netdra)).mode & 0o111).toBe(0o111);
  });

  it('has types that a strict project can use, and that know its mistakes', () => {
    copyFileSync(join(repo, 'examples/driver/driver.ts'), join(app.dir, 'driver.ts'));
    writeFileSync(
      join(app.dir, 'wrong.ts'),
      `import { startKubeletPlugin } from 'netdra/kubeletplugin';
       import { createPlugin } from 'netdra/nri';
       import { FakeRuntime } from 'netdra/nri/testing';
       export const helper = startKubeletPlugin({}, 1);
       export const plugin = createPlugin({ name: 1 });
       export const runtime = new FakeRuntime({ socket: '' });`,
    );
    const compilerOptions = {
      ...{ target: 'es2024', lib: ['es2024', 'esnext.disposable'], module: 'nodenext', types: ['node'] },
      ...{ strict: true, noEmit: true, exactOptionalPropertyTypes: true },
    };
    const check = (...files: string[]) => {
      writeFileSync(join(app.dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
      const { stdout } = spawnSync(join(repo, 'node_modules/.bin/tsc'), ['-p', app.dir], { encoding: 'utf8' });
      return stdout.split('\n').filter((line) => line.includes(': error '));
    };
    expect(check('driver.ts')).toEqual([]);
    const wrongLines = check('wrong.ts').map((line) => Number(/wrong\.ts\((\d+)/.exec(line)?.[1]));
    expect([...new Set(wrongLines)]).toEqual([4, 5, 6]);
  });

  it.each(['README.md', 'nri/README.md', 'docs/driver-authors.md'])('has all that %s links to', (page) => {
    expect(findBrokenLinks(page, readFileSync(join(app.packageDir, page), 'utf8'), app.packageDir)).toEqual([]);
  });

  it('has no source of the driver itself, no test and no path of this machine in it', () => {
    const files = execFileSync('find', ['.', '-type', 'f'], { cwd: app.packageDir, encoding: 'utf8' }).split('\n');
    const others = files.filter((file) => file !== `./${manifest.bin.netdra}`);
    expect(others).toHaveLength(files.length - 1);
    const code = others.filter((file) => file.startsWith('./dist/'));
    expect(code.filter((file) => /sriov|netlink|\/sandbox\/|\.test\./.test(file))).toEqual([]);
    expect(spawnSync('grep', ['-rl', repo.replace(/\/$/, ''), 'dist'], { cwd: app.packageDir }).status).toBe(1);
  });
});
