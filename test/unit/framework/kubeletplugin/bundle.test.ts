import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { build, type Format } from 'esbuild';
import { describe, expect, it, onTestFinished } from 'vitest';
import { repository as repo } from '../../../../scripts/run-command.ts';
import { DraClient } from '../../../doubles/kubelet-dra-client.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const driver = `
import { startKubeletPlugin } from './src/framework/kubeletplugin/index.ts';
const [dataDir, registryDir] = process.argv.slice(2);
const claim = { metadata: { uid: 'u' }, spec: {}, status: { allocation: {}, reservedFor: [{ resource: 'pods', uid: 'p' }] } };
const plugin = {
  prepareResourceClaims: async () => new Map([['u', { devices: [] }]]),
  unprepareResourceClaims: async () => new Map([['u', undefined]]),
};
const claims = { readClaim: async () => claim };
startKubeletPlugin(plugin, { driver: 'a.example', dataDir, registryDir, claims, logger: console }).then(
  () => console.log('serving'),
  (error) => { console.error(error.message, error.hint); process.exit(1); },
);
`;

/** Bundles the driver as its author would, into a folder of its own. */
async function bundle(format: Format) {
  const dir = tempDir();
  onTestFinished(() => dir[Symbol.dispose]());
  const main = join(dir.path, 'app', format === 'esm' ? 'driver.mjs' : 'driver.cjs');
  const banner = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";
  await build({
    stdin: { contents: driver, resolveDir: repo, loader: 'ts' },
    outfile: main,
    bundle: true,
    platform: 'node',
    target: 'node24',
    format,
    external: ['koffi'],
    logLevel: 'error',
    ...(format === 'esm' && { banner: { js: banner } }),
  });
  const [dataDir, registryDir] = ['data', 'registry'].map((name) => join(dir.path, name)) as [string, string];
  mkdirSync(registryDir);
  return { dir: dir.path, app: join(dir.path, 'app'), args: [main, dataDir, registryDir], dataDir };
}

describe.each(['esm', 'cjs'] as const)('a driver bundled by esbuild as %s', (format) => {
  it('serves the kubelet without native packages if the protobuf definitions are beside it', async () => {
    const { app, args, dataDir } = await bundle(format);
    cpSync(join(repo, 'proto'), join(app, 'proto'), { recursive: true });
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    onTestFinished(() => void child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    using client = new DraClient(join(dataDir, 'dra.sock'));
    const claim = { namespace: 'default', name: 'c', uid: 'u' };
    expect(await client.nodePrepareResources([claim])).toMatchObject({ claims: { u: { error: '', devices: [] } } });
    expect(await client.nodeUnprepareResources([claim])).toMatchObject({ claims: { u: { error: '' } } });
  });

  it('exits without the protobuf definitions, and says what to copy', async () => {
    const { args } = await bundle(format);
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 20_000 });
    expect(stderr).toContain('there is no plugin-registration.proto beside the program');
    expect(stderr).toContain('copy the folder proto of the package beside the bundled driver');
    expect(status).toBe(1);
  });
});
