import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import type { WaitResult, WaitTimes } from '../../../../src/driver/sandbox/index.ts';
import { NamespaceEnds } from '../../../../src/driver/sandbox/namespace-ends.ts';
import { Sandbox } from '../../../../src/driver/sandbox/sandbox.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedClaims } from '../../../doubles/stored-claims.ts';
import { FakeNetworks } from './fake-networks.ts';
import { FakeWork } from './fake-work.ts';

/** A sandbox of a pod with these claims, and the waits that it has reported. */
export function openSandbox(claims: StoredClaim[], { liveUpdates = false } = {}) {
  const clock = new ManualClock();
  const networks = new FakeNetworks('/netns/s1');
  const work = new FakeWork();
  const waits: [podUid: string, WaitResult, WaitTimes][] = [];
  const slow: string[] = [];
  const facts = { sandboxId: 's1', podUid: 'pod', podNamespace: 'apps', podName: 'web-0', netnsPath: '/netns/s1' };
  const sandbox = new Sandbox(facts, {
    store: { ...storedClaims(() => claims), claimsOfPod: () => claims },
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
    onWaited: (...wait) => waits.push(wait),
    onFailure: () => undefined,
    onFlapping: () => undefined,
    onSlow: (_, __, progress) => slow.push(progress),
    liveUpdates,
    clock,
    logger: new RecordingLogger(),
  });
  return { sandbox, work, clock, networks, waits, slow };
}
