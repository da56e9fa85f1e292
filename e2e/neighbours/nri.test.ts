import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  type ContainerAdjustment,
  createPlugin,
  type FailurePolicy,
  type Plugin,
  type PluginHandlers,
  type PluginOptions,
} from '../../nri/index.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { socketPath, until } from '../../test/unit/nri/support.ts';
import { ensureGoPrograms } from '../go/build.ts';
import { GoRuntime, type GoRuntimeOptions } from './go-runtime.ts';
import { nriRuntimes } from './programs.ts';

const launchedPlugin = fileURLToPath(new URL('../../test/unit/nri/fixtures/launched-plugin.ts', import.meta.url));

describe.each(nriRuntimes)('the runtime side of NRI $version', (runtimeOf) => {
  const { module, knowsFailurePolicy } = runtimeOf;
  let program: string;
  beforeAll(async () => {
    program = join(await ensureGoPrograms(cacheFolder(process.env), module, console.error), 'nri-runtime');
  });

  async function startRuntime(options: Partial<GoRuntimeOptions> = {}): Promise<GoRuntime> {
    const path = options.socketPath ?? socketPath();
    const settings = {
      program,
      socketPath: path,
      pluginDir: join(dirname(path), 'plugins'),
      requestTimeoutMs: 10_000,
      ...options,
    };
    const runtime = await GoRuntime.start(settings);
    onTestFinished(() => runtime[Symbol.asyncDispose]());
    return runtime;
  }

  function startPlugin(path: string, handlers: PluginHandlers, extra: Partial<PluginOptions> = {}): Plugin {
    const backoff = { initialMs: 20, dialMaxMs: 40, maxMs: 80 };
    const options = { name: 'test', index: '10', socketPath: path, handlers, backoff, disposeTimeoutMs: 100 };
    const plugin = createPlugin({ ...options, ...extra });
    onTestFinished(() => plugin[Symbol.asyncDispose]());
    plugin.start();
    return plugin;
  }

  /** A runtime with a connected plugin. */
  async function stage(
    handlers: PluginHandlers,
    options: Partial<GoRuntimeOptions> = {},
    extra?: Partial<PluginOptions>,
  ) {
    const path = socketPath();
    const runtime = await startRuntime({ socketPath: path, ...options });
    const plugin = startPlugin(path, handlers, extra);
    await plugin.whenConnected();
    return { path, runtime, plugin };
  }

  it('reads a rejection of any length, although it reads at most 4096 bytes of a frame at once', async () => {
    const { runtime, plugin } = await stage({
      runPodSandbox: ({ annotations }) => {
        throw new Error('x'.repeat(Number(annotations.length)));
      },
    });
    const aroundOneRead = Array.from({ length: 40 }, (_, index) => 4_060 + index);
    for (const length of [0, ...aroundOneRead, 8_192, 100_000, 2_000_000]) {
      const refusal = await outcome(runtime.runPodSandbox({ id: 'a', annotations: { length: String(length) } }));
      expect(/x*$/.exec(refusal)?.[0].length).toBe(length);
      expect(refusal).not.toBe('agreed');
    }
    expect(plugin.connected).toBe(true);
  });

  const policies: Required<FailurePolicy>[] = [
    { failRequest: false, keepConnected: true },
    { failRequest: true, keepConnected: false },
    { failRequest: true, keepConnected: true },
  ];
  // A runtime that does not know policies does the same with each: the strictest one is enough.
  it.each(knowsFailurePolicy ? policies : policies.slice(-1))(
    knowsFailurePolicy
      ? 'refuses an event that the plugin does not answer in time only with failRequest, and keeps the connection only with keepConnected: %j'
      : 'goes on without a plugin that does not answer in time, and drops its connection, although the policy is %j',
    async (policy) => {
      let connections = 0;
      const block = ({ id }: { id: string }) => {
        if (id === 'blocking') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);
      };
      const { runtime, plugin } = await stage(
        {
          synchronize: () => void connections++,
          runPodSandbox: block,
          createContainer: block,
          stopPodSandbox: block,
          removePodSandbox: block,
        },
        { requestTimeoutMs: 400 },
        { failurePolicy: policy },
      );
      const events: [string, (pod: { id: string }) => Promise<void>][] = [
        ['run', (pod) => runtime.runPodSandbox(pod)],
        ['create', (pod) => runtime.createContainer(pod, { id: 'app', pod_sandbox_id: pod.id })],
        ['stop', (pod) => runtime.stopPodSandbox(pod)],
        ['remove', (pod) => runtime.removePodSandbox(pod)],
      ];
      const outcomes: string[] = [];
      const isKept = knowsFailurePolicy && policy.keepConnected;
      for (const [event, ask] of events) {
        const before = connections;
        outcomes.push(await outcome(ask({ id: 'blocking' })));
        // On a busy machine a new connection may be late, too, and be made again.
        if (!isKept) await until(() => connections > before && plugin.connected);
        expect(await outcome(ask({ id: 'quick' })), event).toBe('agreed');
      }
      const refused = expect.stringMatching(/^plugin 10-test failed to handle .*: context deadline exceeded$/);
      expect(outcomes).toEqual(events.map(() => (knowsFailurePolicy && policy.failRequest ? refused : 'agreed')));
      expect(plugin.connected).toBe(true);
      if (isKept) expect(connections).toBe(1);
    },
  );

  it('lets a second instance of a plugin adjust the same container only if it overrides the first', async () => {
    const env = [{ name: 'NIC', value: '0000:3b:02.1' }];
    const mounts = [{ destination: '/in', source: '/on/host', type: 'bind', options: ['ro', 'bind'] }];
    const answers: Record<string, ContainerAdjustment> = {
      env: { env },
      mounts: { mounts },
      both: { env, mounts, overrides: true },
    };
    const handlers: PluginHandlers = { createContainer: (_pod, { name }) => answers[name] };
    const { path, runtime } = await stage(handlers);
    const create = (name: string) => {
      const request = runtime.createContainer({ id: 'pod' }, { id: `c-${name}`, pod_sandbox_id: 'pod', name });
      return outcome(request);
    };
    expect(await create('env')).toBe('agreed');
    await startPlugin(path, handlers).whenConnected();
    expect(await create('env')).toMatch(/plugins "10-test" and "10-test" both tried to set .*/i);
    expect(await create('mounts')).toMatch(/plugins "10-test" and "10-test" both tried to set .*/i);
    expect(await create('both')).toBe('agreed');
  });

  it('launches a plugin, which gets its configuration and exits with the runtime', async () => {
    const path = socketPath();
    const [pluginDir, output] = [join(dirname(path), 'plugins'), join(dirname(path), 'output')];
    mkdirSync(join(pluginDir, 'conf.d'), { recursive: true });
    writeFileSync(join(pluginDir, 'conf.d', '20-launched.conf'), 'colour: blue');
    // Runtimes discard a plugin's output.
    const script = `#!/bin/sh\nexec ${process.execPath} ${launchedPlugin} >${output} 2>&1\n`;
    writeFileSync(join(pluginDir, '20-launched'), script, { mode: 0o755 });
    const runtime = await startRuntime({ socketPath: path, pluginDir });
    expect(await outcome(runtime.runPodSandbox({ id: 'new' }))).toBe('agreed');
    expect(await outcome(runtime.runPodSandbox({ id: 'refused' }))).toContain('not this one');
    await runtime.kill();
    const lines = () => readFileSync(output, 'utf8');
    await until(() => lines().includes('finished'));
    expect(
      lines()
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual([
      { what: 'configure', detail: { runtime: 'neighbour', config: 'colour: blue' } },
      { what: 'synchronize', detail: 0 },
      { what: 'run', detail: 'new' },
      { what: 'run', detail: 'refused' },
      { what: 'disconnected', detail: null },
      { what: 'finished', detail: false },
    ]);
  });
});

/** `agreed`, or the reason of the refusal. */
async function outcome(answer: Promise<void>): Promise<string> {
  try {
    await answer;
    return 'agreed';
  } catch (error) {
    if (error instanceof Error) return error.message;
    throw error;
  }
}
