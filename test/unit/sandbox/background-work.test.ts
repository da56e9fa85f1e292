import { describe, expect, it } from 'vitest';
import type { PodSandbox } from '../../../nri/index.ts';
import { BackgroundWork } from '../../../src/sandbox/background-work.ts';
import { RecordingLogger } from '../../doubles/logger.ts';

const pod = (id: string) => ({ id, namespace: 'default', name: id }) as PodSandbox;
const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

describe('BackgroundWork', () => {
  it('does one piece for each key, however often it is asked', async () => {
    await using work = new BackgroundWork(new RecordingLogger());
    let begun = 0;
    for (let n = 0; n < 3; n++) {
      work.start(pod('a'), 'a', (signal) => {
        begun += 1;
        return untilAborted(signal);
      });
    }
    work.start(pod('b'), 'b', untilAborted);
    expect([begun, work.size]).toEqual([1, 2]);
  });

  it('ends all that is for a sandbox, and nothing else, without a word', async () => {
    const logger = new RecordingLogger();
    await using work = new BackgroundWork(logger);
    work.start(pod('a'), 'a', untilAborted);
    work.start(pod('a'), 'a addresses', untilAborted);
    work.start(pod('b'), 'b', untilAborted);
    work.stop('a');
    await expect.poll(() => work.size).toBe(1);
    expect(logger.lines).toEqual([]);
  });

  it('ends by the controller of who began it: what the hook has left running ends with the pod', async () => {
    await using work = new BackgroundWork(new RecordingLogger());
    const begunByHook = new AbortController();
    work.start(pod('a'), 'a', untilAborted, begunByHook);
    work.stop('a');
    expect(begunByHook.signal.aborted).toBe(true);
  });

  it('logs what fails by itself, and begins nothing after its end', async () => {
    const logger = new RecordingLogger();
    const work = new BackgroundWork(logger);
    work.start(pod('a'), 'a', () => Promise.reject(new Error('no')));
    await expect.poll(() => logger.messages('error')).toEqual(['work after the hook failed']);
    await work[Symbol.asyncDispose]();
    let begun = false;
    work.start(pod('b'), 'b', async () => {
      begun = true;
    });
    expect([begun, work.size]).toEqual([false, 0]);
  });
});
