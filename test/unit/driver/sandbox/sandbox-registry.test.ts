import { beforeEach, describe, expect, it } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { NamespaceEnds } from '../../../../src/driver/sandbox/namespace-ends.ts';
import { SandboxRegistry } from '../../../../src/driver/sandbox/sandbox-registry.ts';
import type { ClaimIdentity } from '../../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';
import { FakeNetworks, turns } from './fake-networks.ts';

const pathOf = (sandboxId: string) => `/netns/${sandboxId}`;
const facts = (sandboxId: string, podUid = `pod-${sandboxId}`) => ({
  sandboxId,
  podUid,
  podNamespace: 'default',
  podName: podUid,
  netnsPath: pathOf(sandboxId),
});
const none: ReadonlySet<string> = new Set();

describe('SandboxRegistry', () => {
  let networks: FakeNetworks;
  let claims: Map<string, StoredClaim>;
  /** What was done, such as `serve a in s1`. */
  let done: string[];
  /** Ids of sandboxes whose waiting containers were ended. */
  let ended: Set<string>;
  let detachFailure: Error | undefined;
  /** What claims that are detached wait for. */
  let detaching: Promise<void> | undefined;
  let registry: SandboxRegistry;
  let clock: ManualClock;
  /** What claims that are served wait for. */
  let serving: Promise<void>;

  beforeEach(() => {
    serving = Promise.resolve();
    detaching = undefined;
    networks = new FakeNetworks(...['s1', 's2', 's3'].map(pathOf));
    claims = new Map();
    done = [];
    ended = new Set();
    detachFailure = undefined;
    clock = new ManualClock();
    registry = new SandboxRegistry({
      store: storedClaims(() => [...claims.values()]),
      claims: {
        podLinks: () => undefined as never,
        serve: async ({ name }, { sandboxId, podUid }) => {
          done.push(`serve ${name} in ${sandboxId}`);
          put(name, podUid, sandboxId);
          await serving;
          return 'ready';
        },
        detach: async ({ name }: ClaimIdentity, sandboxId, goal) => {
          if (detaching !== undefined) await detaching;
          if (detachFailure !== undefined) throw detachFailure;
          if (goal === 'gone') ended.add(sandboxId);
          const claim = claims.get(name);
          if (claim?.devices[0]?.attachment?.sandboxId !== sandboxId) return 0;
          done.push(`detach ${name} from ${sandboxId}`);
          put(name, claim.podUids[0] ?? '');
          return 1;
        },
        serveWithoutVfs: async () => 'ready',
        hold: async () => undefined,
        end: async () => undefined,
      },
      networks,
      ends: new NamespaceEnds({ networks, clock }),
      onFailure: () => undefined,
      onFlapping: () => undefined,
      onWaited: () => undefined,
      onSlow: () => undefined,
      liveUpdates: false,
      clock,
      logger: new RecordingLogger(),
    });
  });

  /** A claim of a pod, whose VF is in a sandbox. */
  function put(name: string, podUid: string, sandboxId?: string): void {
    const place = sandboxId === undefined ? {} : { attachment: facts(sandboxId, podUid) };
    const device = storedDevice({ pciAddress: name, name, ...place });
    const identity = { namespace: 'default', name, uid: name };
    claims.set(name, storedClaim({ identity, podUids: [podUid], devices: [device] }));
  }

  /** The runtime lists these, without containers. */
  async function list(sandboxes: Parameters<SandboxRegistry['synchronize']>[0]): Promise<void> {
    registry.synchronize(sandboxes, none);
    await turns();
  }

  /** The runtime has not listed the sandbox `s1` of the claim `a` for so long that it counts as removed. */
  function missSandbox(): void {
    put('a', 'pod-s1', 's1');
    registry.synchronize([], none);
    clock.advance(10_000);
  }

  async function requeue(times = 1): Promise<void> {
    for (let n = 0; n < times; n++) {
      registry.requeueAll();
      await turns();
    }
  }

  it('serves the sandboxes that the runtime lists, and knows whether the list is current', async () => {
    put('a', 'pod-s1');
    expect([registry.isFresh, registry.has('s1')]).toEqual([false, false]);
    await list([facts('s1'), facts('s2')]);
    expect(done).toEqual(['serve a in s1']);
    expect([registry.isFresh, registry.has('s1'), registry.hasPod('pod-s2')]).toEqual([true, true, true]);
    registry.expire();
    expect([registry.isFresh, registry.has('s1')]).toEqual([false, true]);
  });

  it('serves a pod in the sandbox that has its containers, while an earlier sandbox is still listed', async () => {
    put('a', 'pod');
    registry.synchronize([facts('s1', 'pod'), facts('s2', 'pod')], new Set(['s2']));
    await requeue(2);
    // After another connection, and before a container of the pod is seen.
    registry.synchronize([facts('s1', 'pod'), facts('s2', 'pod')], none);
    await requeue(2);
    expect(new Set(done)).toEqual(new Set(['serve a in s2']));
  });

  it('checks a few ready sandboxes at a time, and no sandbox after it is disposed of', async () => {
    const names = Array.from({ length: 10 }, (_, index) => `s${index + 10}`);
    for (const name of names) {
      networks.paths.add(pathOf(name));
      put(name, `pod-${name}`);
    }
    const ready = names.map((name) => registry.adopt(facts(name), true).want('ready'));
    await Promise.all(ready);
    expect(done).toHaveLength(10);
    const { promise, resolve } = Promise.withResolvers<void>();
    serving = promise;
    await requeue();
    expect(done).toHaveLength(14);
    resolve();
    await turns();
    expect(done).toHaveLength(20);
    serving = turns();
    registry.requeueAll();
    await registry[Symbol.asyncDispose]();
    await turns();
    expect(done.length).toBeLessThanOrEqual(24);
  });

  it('checks only the sandboxes of a pod whose claims were prepared again', async () => {
    put('a', 'pod-s1');
    put('b', 'pod-s2');
    await list([facts('s1'), facts('s2')]);
    done.length = 0;
    registry.requeuePods(['pod-s1', 'pod-without-sandbox']);
    await turns();
    expect(done).toEqual(['serve a in s1']);
  });

  it.each([
    ['whose namespaces the runtime has lost', { isNetnsUnknown: true as const }],
    // containerd 2.4 after a node's death: as for a pod on the host's network.
    ['that the runtime lists without a network namespace', {}],
  ])('finds the namespace of a sandbox %s in the store', async (_what, listed) => {
    put('a', 'pod-s1', 's1');
    const { netnsPath: _unknown, ...known } = facts('s1');
    await list([{ ...known, ...listed }]);
    expect([done, registry.isComplete]).toEqual([['serve a in s1'], true]);
    networks.gone.add(pathOf('s1'));
    await requeue();
    expect(done.at(-1)).toBe('detach a from s1');
  });

  it('detaches VFs of an unknown sandbox when it is stopped', async () => {
    put('a', 'pod-s1', 's1');
    await registry.end(facts('s1'));
    expect(done).toEqual(['detach a from s1']);
  });

  it('detaches VFs at once when the network namespace is removed, even if the runtime still lists the sandbox', async () => {
    put('a', 'pod-s1', 's1');
    await list([facts('s1')]);
    networks.gone.add(pathOf('s1'));
    await requeue();
    expect([done, ended]).toEqual([['serve a in s1', 'detach a from s1'], new Set(['s1'])]);
    expect(registry.has('s1')).toBe(false);
  });

  it('treats an unlisted sandbox as removed only after 10 s, since it can be starting', async () => {
    put('a', 'pod-s1', 's1');
    registry.synchronize([], none);
    clock.advance(9_999);
    await requeue(3);
    expect(done).toEqual([]);
    clock.advance(1);
    await requeue();
    // Its containers wait on: it may be alive all the same.
    expect([done, ended]).toEqual([['detach a from s1'], new Set()]);
  });

  it('does not treat an ended sandbox as the current sandbox of its pod', async () => {
    for (const sandboxId of ['s1', 's2']) registry.adopt(facts(sandboxId, 'p'), false);
    await turns();
    expect([registry.find('s1'), registry.mayBeCurrent(facts('s1', 'p'))]).toEqual([undefined, false]);
  });

  it('serves a sandbox again, once its VFs are detached, if it mistook the sandbox for removed', async () => {
    missSandbox();
    registry.requeueAll();
    const ending = registry.adopt(facts('s1'), false);
    expect([ending.isEnding, ending.isReady('a')]).toEqual([true, false]);
    await turns();
    await registry.adopt(facts('s1'), false).want('ready');
    expect(done).toEqual(['detach a from s1', 'serve a in s1']);
    expect(registry.find('s1')).toMatchObject({ isEnding: false, phase: 'ready' });
  });

  it('serves a sandbox again if the runtime lists it while its VFs are being detached', async () => {
    missSandbox();
    const detached = Promise.withResolvers<void>();
    detaching = detached.promise;
    registry.requeueAll();
    await turns();
    registry.synchronize([facts('s1')], new Set(['s1']));
    detached.resolve();
    await turns();
    expect(done).toEqual(['detach a from s1', 'serve a in s1']);
    expect([registry.has('s1'), registry.find('s1')?.phase]).toEqual([true, 'ready']);
  });

  it('serves a sandbox again if the runtime lists it after detaching its VFs failed', async () => {
    missSandbox();
    detachFailure = new Error('the kernel says no');
    await requeue();
    registry.synchronize([facts('s1')], new Set(['s1']));
    await turns();
    detachFailure = undefined;
    clock.advance(60_000);
    await turns();
    await requeue();
    expect(done).toEqual(['detach a from s1', 'serve a in s1']);
    expect(registry.find('s1')?.phase).toBe('ready');
  });

  it('ends the waiting containers of a sandbox that is stopped after it was mistaken for removed', async () => {
    missSandbox();
    registry.requeueAll();
    await registry.end(facts('s1'));
    expect([done, ended]).toEqual([['detach a from s1'], new Set(['s1'])]);
  });

  it('treats no sandbox as removed because of an outdated list', async () => {
    put('a', 'pod-s1', 's1');
    await requeue(3);
    registry.synchronize([], none);
    registry.expire();
    clock.advance(60_000);
    await requeue(3);
    expect(done).toEqual([]);
  });

  it('treats a sandbox as removed if the next list of the runtime lacks it', async () => {
    put('a', 'pod-s1');
    registry.synchronize([facts('s1')], none);
    await turns();
    registry.synchronize([], none);
    clock.advance(10_000);
    await requeue();
    expect(done).toEqual(['serve a in s1', 'detach a from s1']);
  });

  it('leaves VFs in their sandbox until the runtime reports another current sandbox of the pod', async () => {
    put('a', 'pod', 's2');
    const both = [facts('s1', 'pod'), facts('s2', 'pod')];
    await list(both);
    expect(done).toEqual(['serve a in s2']);
    done.length = 0;
    await registry.adopt(facts('s1', 'pod'), false).want('ready');
    await turns();
    expect(done).toEqual(['detach a from s2', 'serve a in s1']);
  });

  it('does not treat a sandbox as current while the pod or its VFs are in another sandbox', async () => {
    const mayBe = (...ids: string[]) => ids.map((id) => registry.mayBeCurrent(facts(id, 'pod')));
    put('a', 'pod', 's2');
    expect(mayBe('s1', 's2')).toEqual([false, true]);
    put('a', 'pod');
    expect(mayBe('s1', 's2')).toEqual([true, true]);
    registry.synchronize([facts('s2', 'pod')], new Set(['s2']));
    registry.expire();
    expect(mayBe('s1', 's2')).toEqual([false, true]);
    networks.gone.add(pathOf('s2'));
    expect(mayBe('s1')).toEqual([true]);
    await turns();
  });

  it('knows from lists and events which pods have containers', () => {
    const of = () => ['pod-s1', 'pod-s2', 'pod-s3'].map((uid) => registry.hasContainers(uid));
    registry.synchronize([facts('s1'), facts('s2')], new Set(['s1']));
    // The list may lack a container that is being created.
    expect(of()).toEqual([true, 'maybe', false]);
    clock.advance(10_000);
    registry.adopt(facts('s3'), false);
    expect(of()).toEqual([true, false, false]);
    registry.adopt(facts('s3'), true);
    registry.adopt(facts('s1'), false);
    expect(of()).toEqual([true, false, true]);
    registry.synchronize([facts('s1'), facts('s3')], new Set(['s3']));
    clock.advance(10_000);
    expect(of()).toEqual([false, false, true]);
  });

  it('detaches VFs from a sandbox without containers after their claim passed to another pod', async () => {
    put('a', 'pod', 's1');
    registry.synchronize([facts('s1', 'pod')], new Set(['s1']));
    put('a', 'next', 's1');
    clock.advance(10_000);
    await requeue();
    expect(done).not.toContain('detach a from s1');
    registry.synchronize([facts('s1', 'pod')], none);
    await turns();
    expect(done).not.toContain('detach a from s1');
    clock.advance(10_000);
    await requeue();
    expect(done).toContain('detach a from s1');
  });

  it('serves a pod whose VFs are stored as attached to a removed sandbox', async () => {
    put('a', 'pod', 's1');
    networks.gone.add(pathOf('s1'));
    await list([facts('s2', 'pod')]);
    expect(done).toContain('serve a in s2');
    expect(registry.find('s2')?.phase).toBe('ready');
  });

  it('does not count a pod as running after its sandbox is stopped, even if detaching the VFs fails', async () => {
    put('a', 'pod-s1', 's1');
    registry.synchronize([facts('s1')], new Set(['s1']));
    await turns();
    expect([registry.hasPod('pod-s1'), registry.hasContainers('pod-s1')]).toEqual([true, true]);
    detachFailure = new Error('no space left on device');
    await expect(registry.end(facts('s1'))).rejects.toThrow('no space left');
    expect([registry.hasPod('pod-s1'), registry.hasContainers('pod-s1')]).toEqual([false, false]);
  });

  it('retries to detach the VFs of an ended sandbox, and forgets the sandbox once that succeeds', async () => {
    put('a', 'pod-s1', 's1');
    detachFailure = new Error('no space left on device');
    networks.gone.add(pathOf('s1'));
    await requeue();
    expect([registry.find('s1')?.phase, claims.get('a')?.devices[0]?.attachment?.sandboxId]).toEqual([
      'detaching',
      's1',
    ]);
    detachFailure = undefined;
    await requeue();
    expect([registry.find('s1'), done]).toEqual([undefined, ['detach a from s1']]);
  });
});
