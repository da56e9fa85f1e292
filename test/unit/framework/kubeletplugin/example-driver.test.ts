import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { repository as repo } from '../../../../scripts/run-command.ts';
import { ApiServer } from '../../../doubles/api-server.ts';
import { DraClient } from '../../../doubles/kubelet-dra-client.ts';
import { buildClaim, buildPod, testNode } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const driver = 'scratch.example.com';
/** Lets the example import the sources instead of an installed package. */
const sources = `import { registerHooks } from 'node:module';
registerHooks({
  resolve: (name, context, next) =>
    next(name.replace(/^netdra\\/(\\w+)$/, 'file://${repo}src/framework/$1/index.ts'), context),
});`;

it('the example driver prepares a device for claims with adminAccess, but changes it only for its owner', {
  timeout: 120_000,
}, async () => {
  await using stack = new AsyncDisposableStack();
  const { path: dir } = stack.use(tempDir());
  const api = stack.use(await ApiServer.start());
  const folders = { KUBELET_DIR: join(dir, 'kubelet'), CDI_DIR: join(dir, 'cdi'), SCRATCH_DIR: join(dir, 'scratch') };
  mkdirSync(join(folders.KUBELET_DIR, 'plugins_registry'), { recursive: true });
  const [KUBECONFIG, hooks] = [join(dir, 'kubeconfig'), join(dir, 'hooks.mjs')];
  await api.writeKubeconfig(KUBECONFIG);
  writeFileSync(hooks, sources);
  const args = ['--import', hooks, join(repo, 'examples/driver/driver.ts')];
  const env = { ...process.env, NODE_NAME: testNode, KUBECONFIG, ...folders };
  const child = spawn(process.execPath, args, { env, stdio: 'ignore' });
  const exit = once(child, 'exit');
  stack.defer(async () => {
    child.kill('SIGKILL');
    await exit;
  });

  const claim = (name: string, adminAccess: boolean) => {
    const pod = api.create(buildPod(`${name}-pod`));
    const requests = [{ name: 'dir', devices: [{ device: 'slot-0', driver, adminAccess }] }];
    const { metadata } = api.create(buildClaim(name, { driver, requests, pods: [pod] }));
    return { name, namespace: metadata.namespace ?? '', uid: metadata.uid };
  };
  const [observer, owner] = [claim('observer', true), claim('owner', false)];
  const registration = join(folders.KUBELET_DIR, 'plugins_registry', `${driver}-reg.sock`);
  await expect.poll(() => existsSync(registration) || child.exitCode !== null, { timeout: 60_000 }).toBe(true);
  const kubelet = stack.use(new DraClient(join(folders.KUBELET_DIR, 'plugins', driver, 'dra.sock')));
  const prepare = async (each: typeof owner) =>
    (await kubelet.nodePrepareResources([each])).claims[each.uid] ?? expect.unreachable();

  expect(await prepare(observer)).toMatchObject({
    error: '',
    devices: [{ requestNames: ['dir'], deviceName: 'slot-0', cdiDeviceIds: [] }],
  });
  const slot = join(folders.SCRATCH_DIR, 'slot-0');
  expect(existsSync(slot)).toBe(false);
  expect(await prepare(owner)).toMatchObject({ error: '', devices: [{ deviceName: 'slot-0' }] });
  expect(await prepare(observer)).toMatchObject({ error: '' });
  await kubelet.nodeUnprepareResources([observer]);
  expect([existsSync(slot), existsSync(`${slot}.${owner.uid}`)]).toEqual([true, true]);
  await kubelet.nodeUnprepareResources([owner]);
  expect(existsSync(slot)).toBe(false);
  // A record without content is whole, as after a full disk or a kill.
  writeFileSync(`${slot}.${owner.uid}`, '');
  expect(await prepare(claim('second', false))).toMatchObject({ error: `slot-0 is in use by claim ${owner.uid}` });
  expect(await prepare(owner)).toMatchObject({ error: '' });
  await kubelet.nodeUnprepareResources([owner]);
  expect(existsSync(`${slot}.${owner.uid}`)).toBe(false);
});

it('the example driver ends at once without the name of its node', () => {
  using dir = tempDir();
  const hooks = join(dir.path, 'hooks.mjs');
  writeFileSync(hooks, sources);
  const { NODE_NAME: _, ...env } = process.env;
  const args = ['--import', hooks, join(repo, 'examples/driver/driver.ts')];
  const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: 'utf8' });
  expect(status).toBe(1);
  expect(stderr).toContain('NODE_NAME is not set');
});
