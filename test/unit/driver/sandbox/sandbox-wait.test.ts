import { expect, it } from 'vitest';
import { NamespaceEnds } from '../../../../src/driver/sandbox/namespace-ends.ts';
import { Sandbox } from '../../../../src/driver/sandbox/sandbox.ts';
import type { StoredClaim } from '../../../../src/driver/state/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { FakeNetworks, turns } from './fake-networks.ts';
import { claim, device, FakeWork } from './fake-work.ts';

/** A sandbox of a pod with these claims, and the waits that it has reported. */
function openSandbox(claims: StoredClaim[]) {
  const clock = new ManualClock();
  const networks = new FakeNetworks('/netns/s1');
  const work = new FakeWork();
  const waitedMs: number[] = [];
  const facts = { sandboxId: 's1', podUid: 'pod', podNamespace: 'apps', podName: 'web-0', netnsPath: '/netns/s1' };
  const sandbox = new Sandbox(facts, {
    store: { claims: () => claims, claimsOfPod: () => claims },
    claims: {
      podLinks: work.podLinks,
      serve: work.serve.bind(work),
      serveWithoutVfs: work.serveWithoutVfs.bind(work),
      detach: work.detach.bind(work),
      hold: async () => undefined,
      end: work.end.bind(work),
    },
    networks,
    ends: new NamespaceEnds({ networks, clock }),
    onAttached: (ms) => waitedMs.push(ms),
    onFailure: () => undefined,
    onFlapping: () => undefined,
    onSlow: () => undefined,
    liveUpdates: false,
    clock,
    logger: new RecordingLogger(),
  });
  return { sandbox, work, clock, waitedMs };
}

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
