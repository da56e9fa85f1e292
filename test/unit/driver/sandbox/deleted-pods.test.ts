import { beforeEach, describe, expect, it } from 'vitest';
import { DeletedPods } from '../../../../src/driver/sandbox/deleted-pods.ts';
import type { Sandbox } from '../../../../src/driver/sandbox/sandbox.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { pass, turns } from './fake-networks.ts';

describe('DeletedPods', () => {
  let clock: ManualClock;
  let ended: string[];
  let asked: string[];
  let waiting: Sandbox[];
  let answer: (name: string) => Promise<boolean>;
  let pods: DeletedPods;
  const sandbox = (podName: string) =>
    ({
      facts: { podNamespace: 'apps', podName, podUid: `uid-${podName}`, sandboxId: `s-${podName}` },
      endWaiting: async () => void ended.push(podName),
    }) as unknown as Sandbox;

  beforeEach(() => {
    clock = new ManualClock();
    ended = [];
    asked = [];
    waiting = [];
    answer = async () => true;
    const isWanted = async ({ name }: { name: string }) => {
      asked.push(name);
      return await answer(name);
    };
    pods = new DeletedPods({ registry: { waiting: () => waiting }, isWanted, clock, logger: new RecordingLogger() });
  });

  it('ends only waiting containers whose pod is deleted', async () => {
    waiting = [sandbox('kept'), sandbox('deleted')];
    answer = async (name) => name === 'kept';
    await pods.look();
    expect(ended).toEqual(['deleted']);
  });

  it('ends no container while the API server is unreachable', async () => {
    waiting = [sandbox('unknown')];
    answer = () => Promise.reject(new Error('connection refused'));
    await pods.look();
    expect(ended).toEqual([]);
  });

  it('polls every two seconds, only while a container waits', async () => {
    pods.start();
    await turns();
    await pass(clock, 2_000);
    expect(asked).toEqual([]);
    waiting = [sandbox('new')];
    await pass(clock, 2_000);
    expect(asked).toEqual(['new']);
    await pods[Symbol.asyncDispose]();
    expect(clock.sleeping()).toEqual([]);
  });

  it('polls every thirty seconds for a pod whose sandbox is not ready after two minutes', async () => {
    waiting = [sandbox('stuck')];
    const asksWithin = async (ms: number) => {
      asked = [];
      for (let passed = 0; passed < ms; passed += 2_000) {
        await pods.look();
        clock.advance(2_000);
      }
      return asked.length;
    };
    expect([await asksWithin(120_000), await asksWithin(120_000)]).toEqual([60, 4]);
    // It was ready for a moment.
    const [stuck] = waiting.splice(0);
    await pods.look();
    waiting = [stuck!];
    expect(await asksWithin(60_000)).toBe(30);
  });
});
