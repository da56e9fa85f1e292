import { beforeEach, describe, expect, it } from 'vitest';
import type { Container, PodSandbox } from '../../../../nri/index.ts';
import { NriHooks } from '../../../../src/driver/sandbox/nri-hooks.ts';
import type { Sandbox } from '../../../../src/driver/sandbox/sandbox.ts';
import type { SandboxRegistry } from '../../../../src/driver/sandbox/sandbox-registry.ts';
import type { StartGuard } from '../../../../src/driver/sandbox/start-guard.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { turns } from './fake-networks.ts';

const pod = { id: 's1', uid: 'pod', namespace: 'apps', name: 'web', namespaces: [] } as unknown as PodSandbox;
const context = { timeoutMs: 2_000, signal: new AbortController().signal };

describe('NriHooks', () => {
  let clock: ManualClock;
  let calls: string[];
  let work: Promise<void>;
  let mayReturnEarly: boolean;
  let phase: Sandbox['phase'];
  /** What the guard says to the next containers. */
  let refusals: Error[];
  let failure: { error: unknown; attempts: number } | undefined;
  /** What the comparison with NUMA nodes says to the next containers. */
  let compare: () => boolean;
  const adjustment = { env: [{ name: 'PCIDEVICE_INTEL_COM_NIC', value: '0000:3b:02.1,0000:3b:02.2' }] };
  const logger = new RecordingLogger();
  let hooks: NriHooks;

  beforeEach(() => {
    clock = new ManualClock();
    calls = [];
    work = Promise.resolve();
    const noted = <T>(call: string, answer: T): T => {
      calls.push(call);
      return answer;
    };
    failure = undefined;
    const sandbox = {
      want: (desired: string) => noted(`want ${desired}`, work),
      refresh: () => noted('refresh', work),
      get failure() {
        return failure;
      },
      get phase() {
        return phase;
      },
    };
    const registry = {
      adopt: ({ sandboxId }: { sandboxId: string }) => noted(`adopt ${sandboxId}`, sandbox),
      end: ({ sandboxId }: { sandboxId: string }) => noted(`end ${sandboxId}`, work),
      synchronize: (pods: unknown[], current: Set<string>) => calls.push(`list ${pods.length}, in use ${[...current]}`),
      expire: () => calls.push('expire'),
    } as unknown as SandboxRegistry;
    mayReturnEarly = false;
    phase = 'attaching';
    refusals = [];
    const check = () => {
      calls.push('check');
      const refusal = refusals.shift();
      if (refusal !== undefined) throw refusal;
    };
    const guard = { check, mayReturnEarly: () => mayReturnEarly } as unknown as StartGuard;
    compare = () => false;
    const numa = {
      check: () => compare(),
      observe: (_: PodSandbox, { name }: Container) => {
        calls.push(`observe ${name}`);
        compare();
      },
      alignmentOf: () => undefined,
    };
    const onSynchronized = () => calls.push('synchronized');
    const adjustmentOf = () => adjustment;
    hooks = new NriHooks({ registry, guard, numa, adjustmentOf, onSynchronized, clock, logger });
  });

  /** Whether the hook has answered after so much time, and what. */
  async function answerAfter(ms: number, answer: Promise<unknown>): Promise<string> {
    let state = 'waits';
    answer.then(
      () => (state = 'success'),
      () => (state = 'failure'),
    );
    await turns();
    clock.advance(ms);
    await turns();
    return state;
  }

  async function advance(ms: number): Promise<void> {
    await turns();
    clock.advance(ms);
  }

  it('answers once the sandbox is ready', async () => {
    expect(await answerAfter(0, hooks.runPodSandbox(pod, context))).toBe('success');
    expect(calls).toEqual(['adopt s1', 'want ready']);
    expect(clock.sleeping()).toEqual([]);
  });

  it('accepts every sandbox, even after a timeout or an error', async () => {
    work = new Promise(() => undefined);
    expect(await answerAfter(499, hooks.runPodSandbox(pod, context))).toBe('waits');
    expect(await answerAfter(500, hooks.runPodSandbox(pod, context))).toBe('success');
    work = Promise.reject(new Error('the VF is gone'));
    expect(await answerAfter(0, hooks.runPodSandbox(pod, context))).toBe('success');
  });

  it('answers earlier if the deadline of the runtime is shorter than its own', async () => {
    work = new Promise(() => undefined);
    expect(await answerAfter(300, hooks.runPodSandbox(pod, { ...context, timeoutMs: 400 }))).toBe('success');
  });

  it.each(['stopPodSandbox', 'removePodSandbox'] as const)(
    'ends the sandbox at %s and answers within the deadline, even if detaching the VFs takes longer',
    async (name) => {
      work = new Promise(() => undefined);
      expect(await answerAfter(1_499, hooks[name](pod, context))).toBe('waits');
      expect(await answerAfter(1_500, hooks[name](pod, context))).toBe('success');
      work = Promise.reject(new Error('busy'));
      expect(await answerAfter(0, hooks[name](pod, context))).toBe('success');
      expect(calls).toEqual(Array(3).fill('end s1'));
    },
  );

  it('answers at once if the containers can wait themselves, and continues in the background', async () => {
    mayReturnEarly = true;
    work = new Promise(() => undefined);
    expect(await answerAfter(0, hooks.runPodSandbox(pod, context))).toBe('success');
    expect(calls).toEqual(['adopt s1', 'want ready']);
    work = Promise.reject(new Error('the VF is gone'));
    expect(await answerAfter(0, hooks.runPodSandbox(pod, context))).toBe('success');
  });

  it('answers at once for a sandbox without claims', async () => {
    phase = 'pending';
    work = new Promise(() => undefined);
    expect(await answerAfter(0, hooks.runPodSandbox(pod, context))).toBe('success');
    expect(clock.sleeping()).toEqual([]);
  });

  it('waits briefly for a claim that is not ready before it rejects a container', async () => {
    const ready = Promise.withResolvers<void>();
    work = ready.promise;
    refusals = [new Error('not yet')];
    const answer = hooks.createContainer(pod, {} as Container, context);
    expect(await answerAfter(499, answer)).toBe('waits');
    ready.resolve();
    expect(await answerAfter(0, answer)).toBe('success');
    expect(calls).toEqual(['adopt s1', 'want ready', 'check', 'check']);
  });

  it('rejects a container that is not ready after a short delay, or whose VF could not be attached', async () => {
    work = new Promise(() => undefined);
    refusals = [new Error('not yet'), new Error('still not')];
    await expect(Promise.all([hooks.createContainer(pod, {} as Container, context), advance(500)])).rejects.toThrow(
      'still not',
    );
    failure = { error: new Error('the VF is gone'), attempts: 1 };
    refusals = [new Error('the VF is gone')];
    await expect(hooks.createContainer(pod, {} as Container, context)).rejects.toThrow('the VF is gone');
  });

  it('rejects a container on the wrong NUMA node, and waits briefly for a changed alignment in the metadata', async () => {
    compare = () => {
      throw new Error('its CPUs are on NUMA node 1');
    };
    await expect(hooks.createContainer(pod, {} as Container, context)).rejects.toThrow('NUMA node 1');
    for (const isChanged of [false, true]) {
      compare = () => isChanged;
      expect(await hooks.createContainer(pod, {} as Container, context)).toBe(adjustment);
    }
    expect(calls.at(-1)).toBe('refresh');
    work = new Promise(() => undefined);
    expect(await answerAfter(499, hooks.createContainer(pod, {} as Container, context))).toBe('waits');
    work = Promise.reject(new Error('the VF is gone'));
    expect(await answerAfter(0, hooks.createContainer(pod, {} as Container, context))).toBe('success');
  });

  it('compares the NUMA nodes of containers that started while the driver was down', () => {
    const of = (name: string, state: string, podSandboxId = 's1') => ({ name, state, podSandboxId }) as Container;
    hooks.synchronize([pod], [of('main', 'running'), of('init', 'stopped'), of('other', 'running', 's2')]);
    expect(calls).toEqual(['observe main', 'list 1, in use s1,s2', 'synchronized']);
    compare = () => {
      throw new Error('disk full');
    };
    hooks.synchronize([pod], [of('main', 'running')]);
    expect(calls.slice(3)).toEqual(['observe main', 'list 1, in use s1', 'synchronized']);
    expect(logger.lines.map(({ message }) => message)).toContain(
      'cannot compare the CPUs of a running container with its devices; reconciliation tries again',
    );
  });

  it("passes on the runtime's list of sandboxes, and marks the list as outdated when the runtime disconnects", () => {
    hooks.synchronize([pod], [{ podSandboxId: 's1', state: 'stopped' } as Container]);
    hooks.disconnected();
    expect(calls).toEqual(['list 1, in use s1', 'synchronized', 'expire']);
  });
});
