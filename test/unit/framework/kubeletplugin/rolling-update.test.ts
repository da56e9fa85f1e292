import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect } from 'vitest';
import { decodeStream } from '../../../../src/framework/metadata/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { loadFileLock } from '../../../../src/lib/file-mutex.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { DraClient } from '../../../doubles/kubelet-dra-client.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { type Behaviour, Bench } from './bench.ts';

const it = itWith(() => Bench.start());

const [oldUid, newUid] = ['0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001', '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0002'] as const;
const owned = (name: string, ips: string[] = []) => ({
  driver: testDriver,
  pool: 'node-1',
  name,
  ...(ips.length === 0 ? {} : { networkData: { ips } }),
});

/** A driver that notes which claims it prepares and unprepares. */
function notingDriver() {
  const notes: string[] = [];
  const behaviour: Behaviour = {
    prepareResourceClaims: async (claims) => {
      notes.push(...claims.map(({ identity }) => `prepare ${identity.name}`));
      return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
    },
    unprepareResourceClaims: async (claims) => {
      notes.push(...claims.map(({ name }) => `unprepare ${name}`));
      return new Map(claims.map(({ uid }) => [uid, undefined]));
    },
  };
  return { notes, behaviour };
}

describe('a rolling update', () => {
  it('falls back to the old instance when the new one ends', async ({ own: bench }) => {
    const { notes, behaviour } = notingDriver();
    await bench.startHelper(behaviour, { podUid: oldUid });
    const next = await bench.startHelper({}, { podUid: newUid });
    await next[Symbol.asyncDispose]();
    await bench.kubelet.until(() => bench.kubelet.plugins(testDriver).length === 1);
    await bench.preparePod('a');
    expect(notes).toEqual(['prepare a']);
  });

  it('never runs a call while the Go helper runs a call', async ({ own: bench }) => {
    const { notes, behaviour } = notingDriver();
    await bench.startHelper(behaviour, { podUid: oldUid });
    // That helper locks the whole file for as long as a call takes. Source: etcd's fileutil, `LockFile`.
    const path = join(bench.dataDir(), 'serialize.lock');
    const lockFile = await loadFileLock('file');
    const theirs = openSync(path, 'r+');
    expect(lockFile(theirs, 0)).toBe(true);
    const prepared = bench.preparePod('a');
    await systemClock.sleep(200);
    expect(notes).toEqual([]);
    closeSync(theirs);
    await prepared;
    expect(notes).toEqual(['prepare a']);
    const next = openSync(path, 'r+');
    expect(lockFile(next, 0)).toBe(true);
    closeSync(next);
  });

  it("has two instances update one claim's metadata: each gets a generation of its own", async ({ own: bench }) => {
    const instances = [
      await bench.startHelper({}, { podUid: oldUid }),
      await bench.startHelper({}, { podUid: newUid }),
    ];
    const { wire } = await bench.preparePod('a');
    const updates = Array.from({ length: 20 }, (_, n) =>
      instances[n % 2]!.updateRequestMetadata(wire, 'vf', [owned('dev-a', [`192.0.2.${n + 1}/24`])]),
    );
    const generations = (await Promise.all(updates)).map(({ generation }) => generation).sort((a, b) => a - b);
    expect(generations).toEqual(Array.from({ length: 20 }, (_, n) => n + 1));
    expect(decodeStream(bench.metadataText('a', 'vf') ?? '').generation).toBe(20);
  });

  it('lets each instance open a start gate that the other has prepared, and mark its sandbox as ended', async ({
    own: bench,
  }) => {
    const metadata = { gate: { program: '/bin/netdra-gate', timeoutSeconds: 100 } };
    const old = await bench.startHelper({}, { podUid: oldUid, metadata });
    const { pod, wire } = bench.addPod('a');
    const gate = () => readFileSync(join(bench.dataDir(), 'dra-device-metadata/default_a/gate'), 'utf8');
    await bench.kubelet.prepare(pod);
    const next = await bench.startHelper({}, { podUid: newUid, metadata });
    await next.holdGate(wire, 'sandbox-1', 'not yet');
    expect(gate()).toBe('netdra-gate 1\nwaiting sandbox-1 not yet\n');
    await expect(next.openGate(wire, 'sandbox-1')).rejects.toMatchObject({ code: 'metadata-not-written' });
    const update = [owned('dev-a')];
    await Promise.all([old, next].map((helper) => helper.updateRequestMetadata(wire, 'vf', update, 'sandbox-1')));
    expect(gate()).toBe('netdra-gate 1\nserved sandbox-1\n');
    await old.endGate(wire, 'sandbox-1');
    expect(gate()).toBe('netdra-gate 1\nended sandbox-1\n');
  });

  it('runs calls for different claims concurrently across instances that do not serialize calls', async ({
    own: bench,
  }) => {
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const { notes, behaviour } = notingDriver();
    const slow: Behaviour = {
      prepareResourceClaims: async (claims, context) => {
        await ended;
        return await behaviour.prepareResourceClaims!(claims, context);
      },
    };
    const old = await bench.startHelper(slow, { podUid: oldUid, serialize: false });
    const next = await bench.startHelper(behaviour, { podUid: newUid, serialize: false });
    const [a, b] = ['a', 'b'].map((name) => bench.addPod(name).wire);
    const prepareBy = async ({ sockets }: typeof old, claim: typeof a) => {
      using client = new DraClient(sockets.dra);
      return await client.nodePrepareResources([claim!]);
    };
    const first = prepareBy(old, a);
    await bench.api.until(() => bench.api.log.some(({ path, endedMs }) => path.endsWith('/a') && endedMs));
    const again = prepareBy(next, a);
    await prepareBy(next, b);
    expect(notes).toEqual(['prepare b']);
    end();
    await Promise.all([first, again]);
    expect(notes).toEqual(['prepare b', 'prepare a', 'prepare a']);
  });

  it('removes only the sockets of killed instances (requirement 2.6)', async ({ own: bench }) => {
    const other = await bench.startHelper({}, { driver: 'other.example', podUid: oldUid });
    const alive = await bench.startHelper({}, { podUid: oldUid });
    const dead = '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0666';
    const leftovers = [
      join(bench.dataDir(), `dra-${dead}.sock`),
      join(bench.registryDir, `${testDriver}-${dead}-reg.sock`),
    ];
    using killed = await startInstance(bench, dead, 0);
    killed.child.kill('SIGKILL');
    await killed.exit;
    expect(leftovers.map((path) => existsSync(path))).toEqual([true, true]);
    await bench.startHelper({}, { podUid: newUid });
    expect(leftovers.map((path) => existsSync(path))).toEqual([false, false]);
    for (const { sockets } of [other, alive]) {
      expect(Object.values(sockets).map((path) => existsSync(path))).toEqual([true, true]);
    }
    expect(bench.logger.lines.map(({ fields }) => fields)).toContainEqual(
      expect.objectContaining({ paths: [...leftovers].reverse() }),
    );
  });
});

interface Instance extends Disposable {
  child: ChildProcess;
  exit: Promise<unknown>;
}

/** An instance in a process of its own. */
async function startInstance(
  place: Pick<Bench, 'registryDir' | 'dataDir' | 'dir'>,
  podUid: string,
  holdMs: number,
): Promise<Instance> {
  const main = fileURLToPath(new URL('fixtures/instance.ts', import.meta.url));
  const journal = join(place.dir, 'journal');
  const args = [testDriver, place.dataDir(), place.registryDir, podUid, journal, String(holdMs)];
  const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  const [line] = await once(child.stdout!, 'data');
  expect(String(line)).toBe('serving\n');
  return {
    child,
    exit,
    [Symbol.dispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    },
  };
}

describe('two instances in separate processes', { timeout: 60_000 }, () => {
  let dir: ReturnType<typeof tempDir>;
  let stack: DisposableStack;
  let place: Pick<Bench, 'registryDir' | 'dataDir' | 'dir'>;
  beforeEach(() => {
    stack = new DisposableStack();
    dir = stack.use(tempDir());
    place = { dir: dir.path, registryDir: join(dir.path, 'registry'), dataDir: () => join(dir.path, 'data') };
    mkdirSync(place.registryDir);
  });
  afterEach(() => stack.dispose());

  const journal = () => {
    const path = join(dir.path, 'journal');
    return existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : [];
  };
  const clientOf = (podUid: string) => stack.use(new DraClient(join(place.dataDir(), `dra-${podUid}.sock`)));
  const claim = (name: string) => ({ namespace: 'default', name, uid: name });

  it('never prepare or unprepare concurrently (requirement 2.6)', async () => {
    for (const uid of [oldUid, newUid]) stack.use(await startInstance(place, uid, 20));
    const clients = [clientOf(oldUid), clientOf(newUid)];
    const calls = clients.flatMap((client, index) =>
      [0, 1, 2, 3].map(async (round) =>
        round % 2 === 0
          ? await client.nodePrepareResources([claim(`c-${index}-${round}`)])
          : await client.nodeUnprepareResources([claim(`c-${index}-${round}`)]),
      ),
    );
    for (const answer of await Promise.all(calls)) {
      expect(Object.values(answer.claims)).toMatchObject([{ error: '' }]);
    }
    const lines = journal();
    expect(lines).toHaveLength(16);
    // Each call ends before the next one begins, whichever instance serves it.
    for (let n = 0; n < lines.length; n += 2) expect(lines[n + 1]).toBe(lines[n]?.replace('begin', 'end'));
    expect(new Set(lines)).toHaveProperty('size', 4);
  });
});
