import { beforeEach, describe, expect, it } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import type { SandboxFacts } from '../../../../src/driver/sandbox/pod.ts';
import type { Sandbox } from '../../../../src/driver/sandbox/sandbox.ts';
import { WaitingSandboxes } from '../../../../src/driver/sandbox/waiting-sandboxes.ts';
import type { WaitingSandbox } from '../../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedClaims } from '../../../doubles/stored-claims.ts';
import { FakeNetworks, pass, turns } from './fake-networks.ts';

describe('WaitingSandboxes', () => {
  let clock: ManualClock;
  let logger: RecordingLogger;
  let networks: FakeNetworks;
  let announced: WaitingSandbox[];
  let prepared: Map<string, StoredClaim>;
  /** What was asked of the registry, and what it knows. */
  let adopted: SandboxFacts[];
  let known: Set<string>;
  let earlier: Set<string>;
  let failed: Set<string>;
  let isComplete: boolean;
  let serve: (sandboxId: string) => Promise<void>;
  let listing: () => Promise<void>;
  let waiting: WaitingSandboxes;

  /** A sandbox `s-{name}` of pod `{name}`, which waits for a claim of that name. */
  const announcement = (name: string, more: Partial<WaitingSandbox> = {}): WaitingSandbox => ({
    claim: { namespace: 'apps', name, uid: `claim-${name}` },
    sandboxId: `s-${name}`,
    podUid: name,
    podNamespace: 'apps',
    podName: name,
    netnsPath: `/netns/${name}`,
    ...more,
  });
  function put(name: string, state: StoredClaim['state'] = 'prepared', podUids = [name]): void {
    prepared.set(`claim-${name}`, { identity: { uid: `claim-${name}` }, state, podUids } as StoredClaim);
  }
  const ids = () => adopted.map(({ sandboxId }) => sandboxId);

  beforeEach(() => {
    clock = new ManualClock();
    logger = new RecordingLogger();
    networks = new FakeNetworks();
    announced = [];
    prepared = new Map();
    adopted = [];
    known = new Set();
    earlier = new Set();
    failed = new Set();
    isComplete = false;
    serve = async () => undefined;
    listing = async () => undefined;
    for (const name of ['a', 'b']) put(name);
    waiting = new WaitingSandboxes({
      metadata: {
        waiting: async () => {
          await listing();
          return { sandboxes: announced, problems: [] };
        },
      },
      store: storedClaims(() => [...prepared.values()]),
      registry: {
        isLocated: (id) => known.has(id),
        mayBeCurrent: ({ sandboxId }) => !earlier.has(sandboxId),
        adopt(facts) {
          adopted.push(facts);
          known.add(facts.sandboxId);
          const failure = failed.has(facts.sandboxId) ? { error: new Error('no VF'), attempts: 1 } : undefined;
          return { failure, want: () => serve(facts.sandboxId) } as unknown as Sandbox;
        },
        get isComplete() {
          return isComplete;
        },
      },
      networks,
      clock,
      logger,
    });
  });

  it('serves all waiting sandboxes concurrently, as if the runtime had reported them', async () => {
    announced = [announcement('a'), announcement('b')];
    const releases: (() => void)[] = [];
    serve = () => new Promise((resolve) => releases.push(resolve));
    let isOver = false;
    const work = waiting.serve().then(() => {
      isOver = true;
    });
    await turns();
    expect(adopted).toEqual([
      { sandboxId: 's-a', podUid: 'a', podNamespace: 'apps', podName: 'a', netnsPath: '/netns/a' },
      { sandboxId: 's-b', podUid: 'b', podNamespace: 'apps', podName: 'b', netnsPath: '/netns/b' },
    ]);
    expect(isOver).toBe(false);
    for (const release of releases) release();
    await work;
    expect(logger.messages()).toEqual(['attached the devices of sandboxes whose containers were waiting']);
  });

  it('delays connecting to the runtime by at most five seconds', async () => {
    announced = [announcement('a')];
    serve = () => new Promise(() => undefined);
    let isOver = false;
    void waiting.serve().then(() => {
      isOver = true;
    });
    await turns();
    await pass(clock, 4_999);
    expect(isOver).toBe(false);
    await pass(clock, 1);
    expect(isOver).toBe(true);
  });

  it('continues if one sandbox fails, or if announcements cannot be listed', async () => {
    announced = [announcement('a'), announcement('b')];
    serve = (id) => (id === 's-a' ? Promise.reject(new Error('no VF')) : Promise.resolve());
    await waiting.serve();
    expect(ids()).toEqual(['s-a', 's-b']);
    listing = () => Promise.reject(new Error('EIO'));
    await waiting.serve();
    expect(logger.messages()).toContain(
      'cannot find the containers that wait: they wait until the runtime is connected',
    );
  });

  it.each<[string, () => void]>([
    ['whose network namespace has gone', () => networks.gone.add('/netns/a')],
    [
      'whose network namespace was not found',
      () => announced.splice(0, 1, { ...announcement('a'), netnsPath: undefined as never }),
    ],
    ['whose claim is not prepared', () => put('a', 'unpreparing')],
    ['whose claim is unknown', () => prepared.delete('claim-a')],
    ['whose claim belongs to another pod', () => put('a', 'prepared', ['other'])],
    ['that the runtime has already reported', () => known.add('s-a')],
    ['whose pod has another sandbox', () => earlier.add('s-a')],
    [
      'whose pod announces two sandboxes',
      () => announced.push(announcement('a', { sandboxId: 's-a2', netnsPath: '/netns/a2' })),
    ],
  ])('does not serve a sandbox %s until the runtime reports it', async (_what, arrange) => {
    announced = [announcement('a'), announcement('b')];
    arrange();
    await waiting.serve();
    expect(ids()).toEqual(['s-b']);
  });

  it('serves a sandbox that waits for several claims only once', async () => {
    put('c', 'prepared', ['a']);
    const { claim } = announcement('c');
    announced = [announcement('a'), announcement('a', { claim })];
    await waiting.serve();
    expect(ids()).toEqual(['s-a']);
  });

  it('does not retry a failed sandbox, which retries by itself', async () => {
    const asked: string[] = [];
    serve = async (id) => void asked.push(id);
    announced = [announcement('a'), announcement('b')];
    failed.add('s-a');
    await waiting.serve();
    expect([ids(), asked]).toEqual([['s-a', 's-b'], ['s-b']]);
  });

  it('polls every second until the runtime has listed all sandboxes', async () => {
    waiting.start();
    await turns();
    announced = [announcement('a')];
    await pass(clock, 1_000);
    expect(ids()).toEqual(['s-a']);
    isComplete = true;
    announced = [announcement('b')];
    await pass(clock, 1_000);
    expect(ids()).toEqual(['s-a']);
    isComplete = false;
    await pass(clock, 1_000);
    expect(ids()).toEqual(['s-a', 's-b']);
    await waiting[Symbol.asyncDispose]();
    expect(clock.sleeping()).toEqual([]);
  });
});
