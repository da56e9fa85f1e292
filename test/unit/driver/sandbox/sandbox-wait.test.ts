import { expect, it } from 'vitest';
import { turns } from './fake-networks.ts';
import { claim, device } from './fake-work.ts';
import { openSandbox } from './open-sandbox.ts';

it('reports once how long the pod has waited for all of its VFs, failed attempts included', async () => {
  const { sandbox, work, clock, waitedMs } = openSandbox([claim('a'), claim('b')]);
  work.failures.set('b', new Error('not yet'));
  await sandbox.want('ready').catch(() => undefined);
  clock.advance(500);
  await turns();
  expect(waitedMs).toEqual([]);
  work.failures.clear();
  clock.advance(1_000);
  await turns();
  await sandbox.refresh();
  expect([sandbox.phase, waitedMs]).toEqual(['ready', [1_500]]);
});

it('reports no wait for VFs that were attached before the driver started', async () => {
  const { sandbox, waitedMs } = openSandbox([claim('a', [{ ...device, attachment: { sandboxId: 's1' } as never }])]);
  await sandbox.want('ready');
  expect([sandbox.phase, waitedMs]).toEqual(['ready', []]);
});
