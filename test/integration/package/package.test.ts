import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tempDir } from '../../doubles/temp-dir.ts';
import { makePackedApp, type PackedApp } from './packed-app.ts';

const repo = fileURLToPath(new URL('../../..', import.meta.url));
const manifest = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8'));
const names = ['kubeletplugin', 'metadata', 'resourceslice', 'nri', 'nri/testing'];

describe('the package', { timeout: 60_000 }, () => {
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
      ...{ strict: true, noEmit: true, exactOptionalPropertyTypes: true, skipLibCheck: true },
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

  it('has no source of the driver itself, no test and no path of this machine in it', () => {
    const files = execFileSync('find', ['.', '-type', 'f'], { cwd: app.packageDir, encoding: 'utf8' }).split('\n');
    expect(files.filter((file) => /sriov|netlink|sandbox|\.test\./.test(file))).toEqual([]);
    expect(spawnSync('grep', ['-rl', repo.replace(/\/$/, ''), 'dist'], { cwd: app.packageDir }).status).toBe(1);
  });
});
