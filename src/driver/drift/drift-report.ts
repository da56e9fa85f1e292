import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import type { Logger } from '../../lib/logger.ts';
import type { FailureEvents } from '../events/index.ts';
import type { StoredClaim, StoredDevice } from '../model/index.ts';
import { type Drift, describeDrift, isShared, type PfDrift, type PodDrift } from './drift.ts';
import type { DriftRecord, DriftSide, DriftState } from './drift-record.ts';
import type { PfComparison } from './pf-drift.ts';

/** Outcomes for a setting that has drifted. */
export const driftResults = ['restored', 'lost', 'reported'] as const;
export type DriftResult = (typeof driftResults)[number];

const leftToPod =
  'netdra does not change the network of a running pod; delete the pod unless its software made this change on purpose';

const sharedAddresses =
  'another host of the network has the same address: find the host by its MAC address in the switch, then change one of the two addresses';

const messages: Record<DriftSide, string> = {
  lost: 'a VF in a pod has lost settings',
  others: 'settings of a VF in a pod differ from its claim',
  pod: 'settings of a VF in a pod differ from its claim',
  network: 'found addresses of a VF in a pod at another host, too',
};
const reports = {
  lost: 'settingsLost',
  others: 'settingsChanged',
  pod: 'settingsChanged',
  network: 'duplicateAddresses',
} as const;

export interface DriftReportOptions {
  record: DriftRecord;
  events: Pick<FailureEvents, 'duplicateAddresses' | 'settingsChanged' | 'settingsLost' | 'settingsRestored'>;
  /** Called for each setting that has drifted. */
  onDrift: (setting: string, result: DriftResult) => void;
  /** Called when the condition of a device of the claim has changed. */
  onCondition: (claim: ClaimIdentity) => void;
  logger: Logger;
}

/** Reports each drift once: by an event, in the status of the claim, to the device list, and to metrics. */
export class DriftReport {
  readonly #options: DriftReportOptions;

  constructor(options: DriftReportOptions) {
    this.#options = options;
  }

  /** Reports settings that the PF had lost and that were restored. */
  restored({ identity, podUids }: StoredClaim, device: StoredDevice, drifts: readonly PfDrift[]): void {
    this.#count(drifts, 'restored');
    this.#options.events.settingsRestored(identity, podUids, device, describeDrift(drifts));
  }

  pfCompared(claim: StoredClaim, device: StoredDevice, { lost, others }: PfComparison): void {
    this.#set(claim, device, 'lost', lost);
    this.#set(claim, device, 'others', others);
  }

  /**
   * Records the comparison of a VF in its pod. @param drifts differences in the pod's network namespace, and addresses that
   * other hosts have
   */
  podCompared(claim: StoredClaim, device: StoredDevice, drifts: readonly PodDrift[]): void {
    const { shared = [], changed = [] } = Object.groupBy(drifts, (drift) => (isShared(drift) ? 'shared' : 'changed'));
    this.#set(claim, device, 'pod', changed.length === 0 ? undefined : { drifts: changed, reason: leftToPod });
    this.#set(claim, device, 'network', shared.length === 0 ? undefined : { drifts: shared, reason: sharedAddresses });
  }

  #set({ identity, podUids }: StoredClaim, device: StoredDevice, side: DriftSide, state: DriftState | undefined): void {
    const { record, events, logger } = this.#options;
    if (!record.set(identity.uid, device, side, state)) return;
    if (state !== undefined) {
      const { drifts, reason } = state;
      const isLost = side === 'lost';
      const log = { claim: claimName(identity), device: device.name, drift: describeDrift(drifts), reason };
      logger.warn(log, messages[side]);
      this.#count(drifts, isLost ? 'lost' : 'reported');
      const report = events[reports[side]];
      report.call(events, identity, podUids, device, `${describeDrift(drifts)}: ${reason}`);
    }
    this.#conditionChanged(identity);
  }

  #count(drifts: readonly Drift[], result: DriftResult): void {
    for (const { setting } of drifts) this.#options.onDrift(setting, result);
  }

  #conditionChanged(claim: ClaimIdentity): void {
    try {
      this.#options.onCondition(claim);
    } catch (err) {
      this.#options.logger.warn({ claim: claimName(claim), err }, 'cannot update claim status');
    }
  }
}
