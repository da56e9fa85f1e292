import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import type { StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { Networks } from '../vf/networks.ts';
import type { ClaimWork } from './claim-work.ts';
import type { NamespaceWatcher } from './namespace-ends.ts';
import type { SandboxFacts } from './pod.ts';
import type { WaitResult, WaitTimes } from './pod-wait.ts';

/** Reports of a sandbox, as callbacks. */
export interface SandboxReports {
  /** Called when a pod no longer waits for its VFs. */
  onWaited: (podUid: string, result: WaitResult, times: WaitTimes) => void;
  /**
   * Called for each claim that is not ready after an attempt to attach it.
   * @param reason the error for people
   * @param lost devices that have left the pod; absent: the attempt reached no device
   */
  onFailure: (claim: ClaimIdentity, reason: string, error: unknown, lost?: readonly StoredDevice[]) => void;
  /** Called for each claim of a pod whose links and addresses keep changing, so that the sandbox reads it less often. */
  onFlapping: (claim: ClaimIdentity) => void;
  /**
   * Called once when a pod waits long for its devices. @param progress progress of the work, with the current device of the
   * claim
   */
  onSlow: (pod: SandboxFacts, claim: ClaimIdentity, progress: string) => void;
}

/** Dependencies of a sandbox. */
export interface SandboxDeps extends SandboxReports {
  store: StoredClaims;
  claims: Pick<ClaimWork, 'detach' | 'end' | 'hold' | 'podLinks' | 'serve' | 'serveWithoutVfs'>;
  networks: Networks;
  ends: NamespaceWatcher;
  /** Whether the driver follows changes in running pods. */
  liveUpdates: boolean;
  clock: Clock;
  logger: Logger;
}
