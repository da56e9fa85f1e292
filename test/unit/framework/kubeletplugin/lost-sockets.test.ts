import { existsSync, lstatSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { describe, expect } from 'vitest';
import { itWith } from '../../../doubles/it-with.ts';
import { poll } from '../../../doubles/kube-bench.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { Bench } from './bench.ts';

const it = itWith(() => Bench.start());

async function startHelper(bench: Bench) {
  const clock = new ManualClock();
  const events: string[] = [];
  const helper = await bench.startHelper(
    {},
    {
      clock,
      podUid: '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001',
      onRegistration: ({ registered }) => events.push(registered ? 'registered' : 'refused'),
      onSocketLost: (problem) => events.push(problem),
    },
  );
  return { clock, events, helper };
}

describe('the sockets of a driver', () => {
  it.each<[string, ('dra' | 'registration')[]]>([
    ['the registration socket', ['registration']],
    ['the DRA socket', ['dra']],
    ['both sockets', ['dra', 'registration']],
  ])('are served and registered again after something removed %s', async (_, names) => {
    await using bench = await Bench.start();
    const { clock, events, helper } = await startHelper(bench);
    const lost = names.map((name) => helper.sockets[name]);
    for (const path of lost) rmSync(path);
    await poll(() => clock.sleeping()).toContain(60_000);
    clock.advance(60_000);
    await poll(() => events).toEqual([
      'registered',
      `something removed or replaced ${lost.join(' and ')}`,
      'registered',
    ]);
    await bench.kubelet.until(() => bench.kubelet.plugins(testDriver)[0]?.isConnected);
    await bench.preparePod('a');
    // Nothing is lost any more.
    await poll(() => clock.sleeping()).toContain(60_000);
    clock.advance(60_000);
    await poll(() => clock.sleeping()).toContain(60_000);
    expect(events).toHaveLength(3);
    await helper[Symbol.asyncDispose]();
    expect(Object.values(helper.sockets).filter((path) => existsSync(path))).toEqual([]);
  });

  it('are left alone if another process listens on them', async ({ own: bench }) => {
    const { clock, helper } = await startHelper(bench);
    const path = helper.sockets.registration;
    rmSync(path);
    const other = createServer().listen(path);
    await poll(() => other.listening).toBe(true);
    const { ino } = lstatSync(path);
    await poll(() => clock.sleeping()).toContain(60_000);
    clock.advance(60_000);
    await poll(() => bench.logger.messages('error')).toContain('cannot listen for the kubelet');
    await helper[Symbol.asyncDispose]();
    expect(lstatSync(path).ino).toBe(ino);
    other.close();
  });
});
