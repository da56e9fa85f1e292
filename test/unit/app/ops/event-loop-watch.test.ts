import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { watchEventLoop } from '../../../../src/app/ops/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';

it('EventLoopWatch reports the length of event loop stalls that would delay hooks, and ignores shorter stalls', async () => {
  const logger = new RecordingLogger();
  const windows: number[] = [];
  using _watch = watchEventLoop(logger, (stallMs) => windows.push(stallMs));
  await sleep(250);
  for (const endsAt = performance.now() + 400; performance.now() < endsAt; );
  while (windows.length < 1) await sleep(50);
  expect(windows[0]).toBeGreaterThanOrEqual(300);
  expect(logger.messages('warn')).toContain('event loop stalled');
});
