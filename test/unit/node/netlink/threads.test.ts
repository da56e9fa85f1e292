import { expect, it } from 'vitest';
import { enterThread, leaveThread, takeThread } from '../../../../src/node/netlink/threads.ts';

it('netlink calls leave one of four threads free, start in order, and do not start after an abort', async () => {
  const log: string[] = [];
  const stop = new AbortController();
  for (const name of ['a', 'b', 'c']) enterThread(() => log.push(name));
  const late = takeThread(stop.signal);
  const inTime = takeThread(new AbortController().signal);
  enterThread(() => log.push('d'));
  stop.abort(new Error('too late'));
  await expect(late).rejects.toThrow('too late');
  expect(log).toEqual(['a', 'b', 'c']);
  leaveThread();
  const taken = await inTime;
  expect(log).toEqual(['a', 'b', 'c']);
  taken[Symbol.dispose]();
  expect(log).toEqual(['a', 'b', 'c', 'd']);
  for (let call = 0; call < 3; call++) leaveThread();
  (await takeThread(stop.signal))[Symbol.dispose]();
});
