import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { FakeRuntime } from '../../../nri/testing.ts';
import { until } from './support.ts';

const nri = new URL('../../../nri/', import.meta.url);

/** The example of the README as a file of its own. */
function writeExample(): string {
  const readme = readFileSync(new URL('README.md', nri), 'utf8');
  const [, code = ''] = /```ts\n(.*?)```/s.exec(readme) ?? [];
  const directory = mkdtempSync(join(tmpdir(), 'nri-readme-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'example.ts');
  writeFileSync(path, code.replace("'./nri/index.ts'", JSON.stringify(fileURLToPath(new URL('index.ts', nri)))));
  return path;
}

it('the example in the README runs and has the described effect', async () => {
  const child = spawn(process.execPath, [writeExample()], {
    env: { NRI_PLUGIN_NAME: 'door-keeper', NRI_PLUGIN_IDX: '10', NRI_PLUGIN_SOCKET: '3' },
    stdio: ['ignore', 'pipe', 'inherit', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines: string[] = [];
  if (child.stdout === null) throw new Error('no standard output');
  createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
  const runtime = new FakeRuntime({ pods: [{ id: 'old' }] });
  runtime.launch(child.stdio[3] as Duplex);
  await runtime.waitForPlugin('door-keeper');
  const web = { id: 'a', namespace: 'default', name: 'web', namespaces: [{ type: 'network', path: '/run/netns/1' }] };
  await runtime.runPodSandbox(web);
  await runtime.removePodSandbox(web);
  const refused = { id: 'b', annotations: { 'door-keeper/refuse': 'yes' } };
  await expect(runtime.runPodSandbox(refused)).rejects.toThrow('not in here');
  await until(() => lines.length === 5);
  const ended = once(child, 'close');
  child.kill('SIGTERM');
  expect(await ended).toEqual([0, null]);
  expect(lines).toEqual([
    'serving containerd v2.1.9',
    '1 pods are here already',
    'default/web uses /run/netns/1, 2000 ms to look at it',
    'default/web is gone',
    '/ uses the network of the host, 2000 ms to look at it',
  ]);
});
