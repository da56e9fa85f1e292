import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { type ContainerAdjustment, createPlugin } from '../../../nri/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { startContainerd } from '../containerd.ts';
import { createContainer, exec, runContainer, runPod } from '../pod.ts';
import { containerdSeries } from '../tools.ts';

it.each(containerdSeries)(
  'containerd %s creates a container that two instances of a plugin adjust, if they override each other',
  async (version) => {
    const dir = mkdtempSync(join(tmpdir(), 'netdra-two-'));
    await using containerd = await startContainerd({ version, dir });
    await using stack = new AsyncDisposableStack();
    const start = async (value: string) => {
      const source = join(dir, value);
      writeFileSync(source, value);
      const env = [{ name: 'NIC', value }];
      const mounts = [{ destination: '/nic', source, type: 'bind', options: ['ro', 'bind'] }];
      const plugin = createPlugin({
        name: 'adjusts',
        index: '10',
        socketPath: containerd.nriSocketPath,
        env: {},
        handlers: {
          createContainer: (_pod, { name }): ContainerAdjustment => ({ env, mounts, overrides: name === 'overridden' }),
        },
        logger: new RecordingLogger(),
      });
      stack.use(plugin);
      plugin.start();
      await plugin.whenConnected();
    };
    const sandbox = await runPod(containerd.cri, { name: 'app', namespace: 'default', uid: 'app-uid' });
    await start('one');
    await start('two');
    await expect(createContainer(containerd.cri, sandbox, { name: 'refused' })).rejects.toThrow(/both tried to set/);
    const spec = { name: 'overridden', env: { NIC: 'of the pod', OTHER: 'kept' } };
    const id = await runContainer(containerd.cri, sandbox, spec);
    const { stdout } = await exec(containerd.cri, id, [
      'sh',
      '-c',
      'cat /nic; echo; env; grep -c " /nic " /proc/mounts',
    ]);
    const [file, ...lines] = stdout.trim().split('\n');
    expect(file).toMatch(/^(one|two)$/);
    expect(lines.filter((line) => line.startsWith('NIC='))).toEqual([`NIC=${file}`]);
    expect(lines).toContain('OTHER=kept');
    expect(lines.at(-1)).toBe('1');
  },
);
