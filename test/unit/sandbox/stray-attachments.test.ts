import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { PodSandbox } from '../../../nri/index.ts';
import { Store, type StoredDevice } from '../../../src/driver/index.ts';
import { KeyedMutex } from '../../../src/keyed-mutex.ts';
import { createLeaveSandbox, KnownSandboxes, StrayAttachments } from '../../../src/sandbox/index.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const never = new AbortController().signal;
const ownNetns = '/proc/self/ns/net';
const sandbox = (id: string, path = ownNetns) =>
  ({
    id,
    uid: `pod-${id}`,
    name: id,
    namespace: 'default',
    namespaces: [{ type: 'network', path }],
  }) as unknown as PodSandbox;

describe('StrayAttachments', () => {
  let dir: ReturnType<typeof tempDir>;
  let store: Store;
  let known: KnownSandboxes;
  let strays: StrayAttachments;
  let logger: RecordingLogger;
  let done: string[];
  let withdrawFailure: Error | undefined;

  beforeEach(() => {
    dir = tempDir();
    mkdirSync(join(dir.path, 'netns'));
    store = new Store(join(dir.path, 'state.db'));
    known = new KnownSandboxes();
    logger = new RecordingLogger();
    done = [];
    withdrawFailure = undefined;
    const leave = createLeaveSandbox({
      store,
      carrier: {
        release: async ({ attachment: _, ...device }) => {
          done.push(`release ${device.name}`);
          store.putDevice(device);
        },
      },
      withdraw: async ({ name }) => {
        if (withdrawFailure !== undefined) throw withdrawFailure;
        done.push(`withdraw ${name}`);
      },
    });
    strays = new StrayAttachments({ store, known, leave, claimMutex: new KeyedMutex(), logger });
  });
  afterEach(() => {
    store[Symbol.dispose]();
    dir[Symbol.dispose]();
  });

  /** A claim whose VF is in a sandbox. */
  function attach(name: string, sandboxId: string, netnsPath: string): void {
    const device: StoredDevice = {
      ...{ pciAddress: `pci-${name}`, pool: 'n', name: `dev-${name}`, request: 'vf', config: {} },
      attachment: { podUid: `pod-${sandboxId}`, sandboxId, netnsPath },
    };
    const identity = { namespace: 'default', name, uid: name };
    store.putClaim({ identity, podUids: [], state: 'prepared', devices: [device] });
  }
  const gone = () => join(dir.path, 'netns/gone');

  it('brings a VF back at once when the namespace is gone, after its files were withdrawn', async () => {
    attach('a', 's1', gone());
    known.replace([]);
    await strays.sweep(never);
    expect(done).toEqual(['withdraw a', 'release dev-a']);
    expect(logger.messages('warn')).toEqual(['VFs brought back from a sandbox that is gone']);
    await strays.sweep(never);
    expect(done).toHaveLength(2);
  });

  it('brings it back from a sandbox that is stopped and still listed', async () => {
    attach('a', 's1', gone());
    known.replace([sandbox('s1', gone())]);
    await strays.sweep(never);
    expect(done).toEqual(['withdraw a', 'release dev-a']);
  });

  it('waits for a second look while the namespace is there: the sandbox may just be in the making', async () => {
    attach('a', 's1', ownNetns);
    known.replace([]);
    await strays.sweep(never);
    expect(done).toEqual([]);
    await strays.sweep(never);
    expect(done).toEqual(['withdraw a', 'release dev-a']);
  });

  it('leaves a sandbox alone whose first sign of life came between two looks', async () => {
    attach('a', 's1', ownNetns);
    known.replace([]);
    await strays.sweep(never);
    known.add(sandbox('s1'));
    await strays.sweep(never);
    await strays.sweep(never);
    expect(done).toEqual([]);
  });

  it('touches nothing of sandboxes that the runtime has', async () => {
    attach('a', 's1', ownNetns);
    attach('b', 's2', gone());
    known.replace([sandbox('s1')]);
    for (let n = 0; n < 3; n++) await strays.sweep(never);
    expect(done).toEqual(['withdraw b', 'release dev-b']);
  });

  it('does nothing while the runtime is away, also when its list was known before', async () => {
    attach('a', 's1', gone());
    for (let n = 0; n < 3; n++) await strays.sweep(never);
    known.replace([]);
    known.expire();
    for (let n = 0; n < 3; n++) await strays.sweep(never);
    expect(done).toEqual([]);
  });

  it('does not take a namespace for gone that is not mounted into our container, or whose directory is not', async () => {
    const file = join(dir.path, 'netns/file');
    writeFileSync(file, '');
    attach('a', 's1', file);
    attach('b', 's2', join(dir.path, 'nowhere/netns'));
    known.replace([sandbox('s1', file), sandbox('s2', join(dir.path, 'nowhere/netns'))]);
    for (let n = 0; n < 3; n++) await strays.sweep(never);
    expect(done).toEqual([]);
  });

  it('keeps the VF where it counts as being as long as its files cannot be withdrawn, and tries again', async () => {
    attach('a', 's1', gone());
    known.replace([]);
    withdrawFailure = new Error('no space left on device');
    await strays.sweep(never);
    expect(done).toEqual([]);
    expect(store.claim('a')?.devices[0]?.attachment).toBeDefined();
    expect(logger.messages('warn')).toEqual(['VFs of a sandbox that is gone cannot be brought back']);
    withdrawFailure = undefined;
    await strays.sweep(never);
    expect(done).toEqual(['withdraw a', 'release dev-a']);
  });
});

describe('KnownSandboxes', () => {
  it('forgets those whose namespace is gone: a restarted containerd never tells of their end', () => {
    const known = new KnownSandboxes();
    known.replace([sandbox('alive'), sandbox('dead', '/tmp/no-such-netns')]);
    known.prune();
    expect(known.all().map(({ id }) => id)).toEqual(['alive']);
    expect([known.hasPod('pod-alive'), known.hasPod('pod-dead')]).toEqual([true, false]);
  });

  it('knows which sandbox of a pod was used last, for as long as the runtime has it', () => {
    const known = new KnownSandboxes();
    const [old, current] = [sandbox('old'), sandbox('current')].map((pod) => ({ ...pod, uid: 'pod' })) as [
      PodSandbox,
      PodSandbox,
    ];
    known.replace([old, sandbox('other'), current]);
    expect(known.currentOf('pod')).toBeUndefined();
    expect(known.makeCurrent(old)).toEqual(['current']);
    expect(known.makeCurrent(current)).toEqual(['old']);
    known.delete('old');
    known.replace([current, sandbox('other')]);
    expect(known.currentOf('pod')).toBe('current');
    known.replace([sandbox('other')]);
    expect(known.currentOf('pod')).toBeUndefined();
  });

  it('takes the sandbox that has the VFs for the one that the pod lives in, until the runtime shows which', () => {
    const known = new KnownSandboxes();
    const [one, other, gone] = ['one', 'other', 'gone'].map((id) => ({ ...sandbox(id), uid: 'pod' })) as [
      PodSandbox,
      PodSandbox,
      PodSandbox,
    ];
    known.replace([one, other, gone]);
    const held = (sandboxId: string, { netnsPath = ownNetns, podUid = 'pod' } = {}) => {
      return () => [{ podUid, sandboxId, netnsPath }];
    };
    expect(known.livesElsewhere(one, () => [])).toBe(false);
    expect(known.livesElsewhere(one, held('one'))).toBe(false);
    expect(known.livesElsewhere(one, held('other'))).toBe(true);
    // Nothing runs there, or nobody knows it.
    expect(known.livesElsewhere(one, held('gone', { netnsPath: '/tmp/no-such-netns' }))).toBe(false);
    expect(known.livesElsewhere(one, held('unheard-of'))).toBe(false);
    expect(known.livesElsewhere(one, held('other', { podUid: 'another' }))).toBe(false);
    known.makeCurrent(one);
    expect([one, other].map((pod) => known.livesElsewhere(pod, held('other')))).toEqual([false, true]);
  });
});
