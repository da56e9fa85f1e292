import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createPlugin } from '../../../nri/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { type Containerd, startContainerd } from '../containerd.ts';
import { removeLeakedSandboxesOffline } from '../leaked-sandboxes.ts';
import { runPod } from '../pod.ts';

const app = { name: 'app', namespace: 'default', uid: 'app-uid' };

let containerd: Containerd;
beforeAll(async () => {
  containerd = await startContainerd({ version: '2.1', dir: mkdtempSync(join(tmpdir(), 'netdra-leak-')) });
});
afterAll(async () => await containerd?.[Symbol.asyncDispose]());

const podNames = async () =>
  (await containerd.cri.call('ListPodSandbox', {})).items.map(({ metadata }) => metadata.name).sort();

it('containerd 2.1 that cannot start because of leaked sandboxes starts again after the commands in docs/troubleshooting.md', async () => {
  await runPod(containerd.cri, { ...app, name: 'other', uid: 'other-uid' });
  {
    const runPodSandbox = () => Promise.reject(new Error('refused'));
    await using plugin = createPlugin({
      name: 'refuses',
      index: '10',
      socketPath: containerd.nriSocketPath,
      env: {},
      handlers: { runPodSandbox },
      logger: new RecordingLogger(),
    });
    plugin.start();
    await plugin.whenConnected();
    for (const _ of [1, 2]) await expect(runPod(containerd.cri, app)).rejects.toThrow(/refused/);
  }
  await containerd.stop();
  await expect(containerd.start()).rejects.toThrow(/ended with 1/);
  expect(containerd.logTail(1)).toMatch(/failed to reserve sandbox name .*app_default_app-uid_0/);
  await containerd.stop();

  await removeLeakedSandboxesOffline(containerd);
  await containerd.start();
  expect(await podNames()).toEqual(['other']);
  await runPod(containerd.cri, app);
  expect(await podNames()).toEqual(['app', 'other']);
});
