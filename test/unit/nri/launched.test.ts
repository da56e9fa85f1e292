import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createPlugin } from '../../../nri/index.ts';
import { resolveOptions } from '../../../nri/plugin-options.ts';
import { FakeRuntime } from '../../../nri/testing.ts';

const script = fileURLToPath(new URL('fixtures/launched-plugin.ts', import.meta.url));

interface Launched {
  child: ChildProcess;
  socket: Duplex;
  lines: unknown[];
  ended: Promise<unknown[]>;
}

/** Starts the plugin as a runtime does, with a socket pair on descriptor 3 and hardly any environment. */
function launch(): Launched {
  const child = spawn(process.execPath, [script], {
    env: { NRI_PLUGIN_NAME: 'launched', NRI_PLUGIN_IDX: '20', NRI_PLUGIN_SOCKET: '3' },
    stdio: ['ignore', 'pipe', 'inherit', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines: unknown[] = [];
  if (child.stdout === null) throw new Error('no standard output');
  createInterface({ input: child.stdout }).on('line', (line) => lines.push(JSON.parse(line)));
  return { child, socket: child.stdio[3] as Duplex, lines, ended: once(child, 'close') };
}

describe('a plugin launched by the runtime', () => {
  it('counts as connected even without Synchronize, since an old runtime does not send it', async () => {
    const { socket, lines, ended } = launch();
    const runtime = new FakeRuntime({ nriVersion: undefined, pods: [{ id: 'old' }] });
    runtime.launch(socket);
    await runtime.waitForPlugin('launched');
    await runtime.runPodSandbox({ id: 'new' });
    await runtime.stop();
    await ended;
    // It reports the disconnection only because it considered itself connected.
    expect(lines.map((line) => (line as { what: string }).what)).toEqual([
      'configure',
      'run',
      'disconnected',
      'finished',
    ]);
  });

  it('fails on an invalid descriptor instead of dialing', async () => {
    const plugin = createPlugin({ name: 'a', index: '00', handlers: {}, env: { NRI_PLUGIN_SOCKET: '987' } });
    plugin.start();
    await plugin.finished;
    await expect(plugin.whenConnected()).rejects.toMatchObject({ code: 'connection-closed' });
  });

  it('takes name and index from the environment unless given as options', async () => {
    const env = { NRI_PLUGIN_NAME: 'from-env', NRI_PLUGIN_IDX: '42' };
    expect(resolveOptions({ handlers: {}, env })).toMatchObject({ name: 'from-env', index: '42' });
    expect(resolveOptions({ name: 'a', index: '00', handlers: {}, env })).toMatchObject({ name: 'a', index: '00' });
    expect(() => resolveOptions({ handlers: {}, env: { NRI_PLUGIN_NAME: 'a' } })).toThrow('option index');
    expect(() => resolveOptions({ handlers: {} })).toThrow('option name');
  });

  it.each(['nonsense', '-1', '3x'])('rejects NRI_PLUGIN_SOCKET=%s before it opens anything', (value) => {
    expect(() => createPlugin({ name: 'a', index: '00', handlers: {}, env: { NRI_PLUGIN_SOCKET: value } })).toThrow(
      expect.objectContaining({ code: 'bad-option' }),
    );
  });
});
