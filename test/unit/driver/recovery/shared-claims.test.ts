import { expect, it } from 'vitest';
import { InactiveClaims, Reconciler } from '../../../../src/driver/recovery/index.ts';
import type { ResourceClaim } from '../../../../src/framework/kube/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { buildClaim, buildPod, testDriver, testNode } from '../../../doubles/objects.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

const never = () => Promise.reject(new Error('no claim is due to be unprepared'));

// Two pods may share a claim on purpose, and the first of them may have no container yet.
it('repeats a failed hand-over at once while another claim is reserved for two pods', async () => {
  const [first, next] = [buildPod('first'), buildPod('next')];
  const requests = [{ name: 'vf', devices: ['dev-1'] }];
  const shared = buildClaim('shared', { requests, pods: [first, next] });
  const before = buildClaim('passed-on', { requests, pods: [first] });
  const after = buildClaim('passed-on', { requests, pods: [next], uid: before.metadata.uid });
  const claims = [shared, before].map(({ metadata: { namespace, name, uid } }) =>
    storedClaim({
      identity: { namespace, name, uid },
      podUids: [first.metadata.uid],
      devices: [storedDevice({ pciAddress: '0000:01:10.0', pool: testNode })],
    }),
  );
  const clock = new ManualClock();
  const common = { everyMs: 60_000, clock, logger: new RecordingLogger() };
  const attempts: number[] = [];
  const inactive = new InactiveClaims({
    ...common,
    driver: testDriver,
    pool: testNode,
    store: storedClaims(() => claims),
    metadata: { isRecorded: () => true },
    sandboxes: { isFresh: true, hasPod: (uid) => uid === next.metadata.uid, hasContainers: () => false },
    claims: {
      readClaim: async (_, name) => {
        const object = name === 'shared' ? shared : clock.nowMs() < 12_000 ? before : after;
        return object as unknown as ResourceClaim;
      },
    },
    helper: {
      reclaim: never,
      prepareAgain: async (_, isDue, signal) => (await isDue(signal)) && attempts.push(clock.nowMs()) > 1,
    },
    requestRound: () => reconciler.nudge(),
    requestCheck: () => reconciler.nudgeLater(),
  });
  await using reconciler = new Reconciler({
    ...common,
    tasks: [{ name: 'claims', run: (signal) => inactive.sweep(signal) }],
  });
  reconciler.start();
  reconciler.nudge();
  for (let second = 0; second < 17; second++) {
    for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
    clock.advance(1_000);
  }
  expect(attempts.slice(0, 2)).toEqual([15_000, 15_000]);
});
