import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { describe, expect } from 'vitest';
import { type PrepareResult, startKubeletPlugin } from '../../../../src/framework/kubeletplugin/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { DraClient } from '../../../doubles/kubelet-dra-client.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { Bench, startBench, testPlugin } from './bench.ts';

const it = itWith(() => Bench.start());

/** A driver that takes its time: it says when it was called, and ends when it is let. */
function slowDriver() {
  const started = Promise.withResolvers<AbortSignal>();
  const go = Promise.withResolvers<void>();
  return {
    started: started.promise,
    finish: () => go.resolve(),
    behaviour: {
      prepareResourceClaims: async (
        claims: { identity: { uid: string } }[],
        { signal }: { signal: AbortSignal },
      ): Promise<Map<string, PrepareResult>> => {
        started.resolve(signal);
        await go.promise;
        return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
      },
    },
  };
}

const mode = (path: string) => statSync(path).mode & 0o777;

describe('startKubeletPlugin', () => {
  it('serves the DRA socket before the registration socket, which refers to the DRA socket (requirement 2.6)', async ({
    own: bench,
  }) => {
    const seen: boolean[] = [];
    const options = bench.options();
    const registration = join(bench.registryDir, `${testDriver}-reg.sock`);
    const watching = setInterval(() => {
      if (existsSync(registration)) seen.push(existsSync(join(options.dataDir, 'dra.sock')));
    });
    await using helper = await startKubeletPlugin(testPlugin({}), options);
    await expect.poll(() => seen.length).toBeGreaterThan(0);
    clearInterval(watching);
    expect(seen).not.toContain(false);
    expect(helper.sockets).toEqual({ dra: join(options.dataDir, 'dra.sock'), registration });
  });

  it('creates missing directories and sockets for their owner only', async ({ own: bench }) => {
    const before = process.umask(0o077);
    try {
      await using helper = await startKubeletPlugin(testPlugin({}), bench.options());
      expect(mode(dirname(helper.sockets.dra)).toString(8)).toBe('750');
      expect(mode(helper.sockets.dra).toString(8)).toBe('600');
      expect(mode(helper.sockets.registration).toString(8)).toBe('600');
    } finally {
      process.umask(before);
    }
  });

  it('keeps the mode of existing directories', async ({ own: bench }) => {
    mkdirSync(bench.dataDir(), { recursive: true, mode: 0o711 });
    await using helper = await startKubeletPlugin(testPlugin({}), bench.options());
    expect(mode(dirname(helper.sockets.dra)).toString(8)).toBe('711');
  });

  it('replaces sockets left by a killed instance (requirement 2.6)', async ({ own: bench }) => {
    const options = bench.options();
    const paths = [join(options.dataDir, 'dra.sock'), join(bench.registryDir, `${testDriver}-reg.sock`)];
    for (const path of paths) await leaveSocket(path);
    const helper = await bench.startHelper();
    expect(Object.values(helper.sockets)).toEqual(paths);
  });

  it('refuses to replace the sockets of a running instance', async () => {
    await using bench = await startBench();
    await expect(startKubeletPlugin(testPlugin({}), bench.options())).rejects.toMatchObject({
      code: 'socket-unavailable',
      message: `another process listens on ${bench.helper.sockets.dra}`,
      hint: 'end the other instance first, or give each one the UID of its pod',
    });
    const { wire } = bench.addPod('a');
    const answer = await bench.kubelet.client(testDriver).nodePrepareResources([wire]);
    expect(answer.claims[wire.uid]?.error).toBe('');
  });

  it.each<[string, (path: string) => void]>([
    ['a symbolic link', (path) => symlinkSync('/nowhere', path)],
    ['a file that is not a socket', (path) => writeFileSync(path, 'data')],
    ['a file that is not a socket', (path) => mkdirSync(path)],
  ])('rejects a path that is %s, and does not change it', async (what, put) => {
    await using bench = await Bench.start();
    const options = bench.options();
    const path = join(bench.registryDir, `${testDriver}-reg.sock`);
    put(path);
    await expect(startKubeletPlugin(testPlugin({}), options)).rejects.toThrow(`${path} is ${what}`);
    expect(lstatSync(path).isSocket()).toBe(false);
    // What was started before is stopped again.
    expect(existsSync(join(options.dataDir, 'dra.sock'))).toBe(false);
  });

  it("follows symlinks to directories, since the kubelet's root directory is often a symlink", async ({
    own: bench,
  }) => {
    mkdirSync(join(bench.dir, 'data'));
    symlinkSync(join(bench.dir, 'data'), join(bench.dir, 'linked'));
    const dataDir = join(bench.dir, 'linked', testDriver);
    const helper = await bench.startHelper({}, { dataDir });
    expect(bench.kubelet.plugins(testDriver)).toMatchObject([{ endpoint: join(dataDir, 'dra.sock') }]);
    expect(existsSync(join(bench.dir, 'data', testDriver, 'dra.sock'))).toBe(true);
    await helper[Symbol.asyncDispose]();
  });

  it('rejects a socket path that exceeds the address length', async ({ own: bench }) => {
    const dataDir = join(bench.dir, 'x'.repeat(120));
    await expect(startKubeletPlugin(testPlugin({}), bench.options({ dataDir }))).rejects.toThrow(
      /dra\.sock is longer than 107 bytes/,
    );
    expect(existsSync(dataDir)).toBe(false);
  });
});

describe('options of startKubeletPlugin', () => {
  it.each<[string, object, string]>([
    ['without claims', { claims: undefined }, 'option claims has no method readClaim'],
    ['with an incomplete logger', { logger: { info() {} } }, 'option logger has no method debug'],
    ['with an invalid time', { drainMs: Number.NaN }, 'option drainMs is NaN, not a number of milliseconds'],
    [
      'with a protobuf directory that does not exist',
      { protoDir: '/nowhere' },
      'there is no plugin-registration.proto in /nowhere',
    ],
  ])('are rejected %s', async (_what, wrong, message) => {
    await using bench = await Bench.start();
    const options = { ...bench.options(), ...wrong };
    await expect(startKubeletPlugin(testPlugin({}), options)).rejects.toMatchObject({
      code: 'invalid-options',
      message,
    });
    expect(readdirSync(bench.registryDir)).toEqual([]);
  });

  it('are rejected with a plugin that lacks a method', async () => {
    await using bench = await Bench.start();
    const plugin = { prepareResourceClaims: async () => new Map() } as never;
    await expect(startKubeletPlugin(plugin, bench.options())).rejects.toThrow('no method unprepareResourceClaims');
  });

  it('are rejected with the metadata of another driver', async () => {
    await using bench = await Bench.start();
    const { metadata, ...options } = bench.options();
    const other = { ...options, metadata: metadata!, driver: 'other.example.com' };
    await expect(startKubeletPlugin(testPlugin({}), other)).rejects.toThrow(
      `option metadata is for driver ${testDriver}, not other.example.com`,
    );
  });
});

describe('registration', () => {
  it('logs a rejection and answers it with an error; the kubelet retries (requirement 2.2)', async () => {
    let reason: string | undefined = 'not on this node';
    await using bench = await Bench.start({ refuse: () => reason });
    const heard: object[] = [];
    const options = bench.options({ onRegistration: (status) => heard.push(status) });
    await using helper = await startKubeletPlugin(testPlugin({}), options);
    await expect.poll(() => heard.length).toBeGreaterThan(0);
    expect(heard[0]).toEqual({ registered: false, error: expect.stringContaining('not on this node') });
    expect(helper.registration).toEqual(heard[0]);
    await expect
      .poll(() => bench.kubelet.attempts[0]?.notifyError)
      .toMatch(/code = Unknown desc = failed registration process: .*not on this node/);
    using deadline = systemClock.deadline(20);
    await expect(helper.whenRegistered(deadline.signal)).rejects.toMatchObject({
      code: 'registration-refused',
      message: expect.stringMatching(/has not registered driver .*: it answered: .*not on this node/),
    });
    expect(bench.logger.lines.find(({ level }) => level === 'error')).toMatchObject({
      message: 'the kubelet refused the registration and will try again',
    });
    reason = undefined;
    await helper.whenRegistered(new AbortController().signal);
    expect(helper.registration).toEqual({ registered: true });
  });

  it.each([
    ['throws', () => expect.fail('metrics are broken')],
    ['rejects', async () => expect.fail('metrics are broken')],
  ])('persists, and logs the error, if onRegistration %s', async (_how, onRegistration) => {
    await using bench = await startBench({}, { onRegistration });
    await bench.preparePod('a');
    expect(bench.helper.registration).toEqual({ registered: true });
    expect(bench.kubelet.plugins(testDriver)).toHaveLength(1);
    await expect.poll(() => bench.logger.messages('error')).toEqual(['callback failed']);
  });

  it('rejects whenRegistered at its deadline if no kubelet has connected', async ({ own: bench }) => {
    bench.kubelet[Symbol.dispose]();
    await using helper = await startKubeletPlugin(testPlugin({}), bench.options());
    using deadline = systemClock.deadline(20);
    await expect(helper.whenRegistered(deadline.signal)).rejects.toMatchObject({
      message: `the kubelet has not registered driver ${testDriver}: it has not called GetInfo`,
      hint: expect.stringContaining('plugins_registry'),
    });
    expect(helper.registration).toBeUndefined();
  });
});

describe('stopping the helper', () => {
  it('removes both sockets, the registration socket first', async ({ own: bench }) => {
    const slow = slowDriver();
    const helper = await bench.startHelper(slow.behaviour);
    const { wire } = bench.addPod('a');
    using client = new DraClient(helper.sockets.dra);
    const call = client.nodePrepareResources([wire]);
    await slow.started;
    const stopped = helper[Symbol.asyncDispose]();
    await expect.poll(() => existsSync(helper.sockets.registration)).toBe(false);
    await bench.kubelet.until(() => bench.kubelet.plugins(testDriver).length === 0);
    await expect.poll(() => existsSync(helper.sockets.dra)).toBe(false);
    // The call goes on; it was there before.
    slow.finish();
    expect((await call).claims[wire.uid]?.error).toBe('');
    await stopped;
    expect(bench.logger.messages('warn')).toEqual([]);
  });

  it('aborts calls that take too long, and cuts off calls that ignore the abort', async ({ own: bench }) => {
    const slow = slowDriver();
    const helper = await bench.startHelper(slow.behaviour, { drainMs: 30 });
    const { wire } = bench.addPod('a');
    using client = new DraClient(helper.sockets.dra);
    const call = client.nodePrepareResources([wire]);
    const signal = await slow.started;
    const refused = expect(call).rejects.toThrow(/NodePrepareResources did not end in time: the driver is stopping/);
    await helper[Symbol.asyncDispose]();
    await refused;
    expect(signal.aborted).toBe(true);
    expect(bench.logger.messages('warn')).toEqual(['aborting calls in flight']);
    slow.finish();
  });

  it('also aborts calls that the driver itself has started', async ({ own: bench }) => {
    const slow = slowDriver();
    const helper = await bench.startHelper(slow.behaviour, { drainMs: 30 });
    const { wire } = bench.addPod('a');
    const again = helper.prepareAgain(wire, async () => true, new AbortController().signal);
    const signal = await slow.started;
    const refused = expect(again).rejects.toThrow(/prepareAgain did not end in time/);
    await helper[Symbol.asyncDispose]();
    await refused;
    expect(signal.aborted).toBe(true);
    slow.finish();
  });

  it('waits for metadata writes', async () => {
    await using bench = await startBench();
    const { wire } = await bench.preparePod('a');
    const device = { driver: testDriver, pool: 'node-1', name: 'dev-a' };
    const update = bench.helper.updateRequestMetadata(wire, 'vf', [device]);
    await bench.helper[Symbol.asyncDispose]();
    expect(bench.metadataText('a', 'vf')).toContain('"generation": 1');
    expect(await update).toMatchObject({ generation: 1 });
  });
});

/** A socket file on which no process listens. */
async function leaveSocket(path: string): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(`${path}.old`, resolve));
  // Closing removes the name that was bound, so that the file stays under another one.
  renameSync(`${path}.old`, path);
  await new Promise((resolve) => server.close(resolve));
}
