import { expect, it } from 'vitest';
import { turns } from './fake-networks.ts';
import { claim, device } from './fake-work.ts';
import { openSandbox } from './open-sandbox.ts';

it('Sandbox reports once how long the pod waited for all its VFs, including failed attempts', async () => {
  const { sandbox, work, clock, waits } = openSandbox([claim('a'), claim('b')]);
  work.failures.set('b', new Error('not yet'));
  await sandbox.want('ready').catch(() => undefined);
  clock.advance(500);
  await turns();
  expect([waits, sandbox.waitedMs]).toEqual([[], 500]);
  work.failures.clear();
  clock.advance(1_000);
  await turns();
  await sandbox.refresh();
  expect(sandbox.phase).toBe('ready');
  expect(waits).toEqual([['pod', 'ready', { queued: 1_500, attach: 0, write: 0, total: 1_500 }]]);
  expect(sandbox.waitedMs).toBeUndefined();
});

it('Sandbox reports separately how long it waited for its turn, for VFs and for metadata', async () => {
  const { sandbox, work, clock, waits } = openSandbox([claim('a')]);
  const written = Promise.withResolvers<void>();
  work.slow = { devices: [device, device], attach: async () => clock.advance(40) };
  work.hold = written.promise;
  clock.advance(300);
  const ready = sandbox.want('ready');
  await turns();
  clock.advance(7);
  expect(sandbox.waitedMs).toBe(387);
  written.resolve();
  await ready;
  expect(waits).toEqual([['pod', 'ready', { queued: 300, attach: 80, write: 7, total: 387 }]]);
});

it.each(['gone', 'away'] as const)(
  'Sandbox reports a pod that ends before its VFs are ready: its goal becomes %s',
  async (goal) => {
    const { sandbox, work, clock, waits } = openSandbox([claim('a')]);
    work.hold = new Promise(() => undefined);
    sandbox.want('ready').catch(() => undefined);
    await turns();
    clock.advance(2_000);
    await sandbox.want(goal);
    expect([waits, sandbox.waitedMs]).toEqual([
      [['pod', 'ended', { queued: 2_000, attach: 0, write: 0, total: 2_000 }]],
      undefined,
    ]);
  },
);

it('Sandbox reports a pod whose claims end before their VFs are ready', async () => {
  const claims = [claim('a')];
  const { sandbox, work, waits } = openSandbox(claims);
  work.failures.set('a', new Error('not yet'));
  await sandbox.want('ready').catch(() => undefined);
  claims.pop();
  await sandbox.refresh();
  expect([waits.map(([, result]) => result), sandbox.waitedMs]).toEqual([['ended'], undefined]);
});

it('Sandbox reports no wait for VFs attached before the driver started', async () => {
  const { sandbox, waits } = openSandbox([claim('a', [{ ...device, attachment: { sandboxId: 's1' } as never }])]);
  await sandbox.want('ready');
  expect([sandbox.phase, waits]).toEqual(['ready', []]);
});
