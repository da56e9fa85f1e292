import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import type { Logger } from '../../lib/logger.ts';
import type { FailureEvents } from '../events/index.ts';
import type { StoredClaim, StoredDevice } from '../state/index.ts';
import { type Drift, describeDrift, type PfDrift, type PodDrift } from './drift.ts';
import type { DriftRecord, DriftState } from './drift-record.ts';

/** What became of a setting that had drifted. */
export const driftResults = ['restored', 'lost', 'reported'] as const;
export type DriftResult = (typeof driftResults)[number];

export interface DriftReportOptions {
  record: DriftRecord;
  events: Pick<FailureEvents, 'settingsChangedInPod' | 'settingsLost' | 'settingsRestored'>;
  /** Called for each setting when it is found to have drifted. */
  onDrift: (setting: string, result: DriftResult) => void;
  /** Called when the condition of a device of the claim has changed. */
  onCondition: (claim: ClaimIdentity) => void;
  logger: Logger;
}

/** Reports what has drifted: as events, in the status of the claim, to the device list, and to metrics. Once for each change. */
export class DriftReport {
  readonly #options: DriftReportOptions;

  constructor(options: DriftReportOptions) {
    this.#options = options;
  }

  /** The PF had lost settings of a VF, and has them again. */
  restored({ identity, podUids }: StoredClaim, device: StoredDevice, drifts: readonly PfDrift[]): void {
    this.#count(drifts, 'restored');
    this.#options.events.settingsRestored(identity, podUids, device, describeDrift(drifts));
  }

  /** @param state what the PF does not keep; absent: it keeps all */
  pfCompared({ identity, podUids }: StoredClaim, device: StoredDevice, state: DriftState | undefined): void {
    const { record, events } = this.#options;
    if (!record.set(identity.uid, device, 'pf', state)) return;
    if (state !== undefined) {
      this.#count(state.drifts, 'lost');
      events.settingsLost(identity, podUids, device, `${describeDrift(state.drifts)}: ${state.reason}`);
    }
    this.#conditionChanged(identity);
  }

  /** @param drifts what is different in the network namespace of the pod */
  podCompared({ identity, podUids }: StoredClaim, device: StoredDevice, drifts: readonly PodDrift[]): void {
    const { record, events, logger } = this.#options;
    const reason =
      'netdra changes nothing in the network namespace of a running pod; if the pod has not done it on purpose, delete the pod';
    const state = drifts.length === 0 ? undefined : { drifts, reason };
    if (!record.set(identity.uid, device, 'pod', state)) return;
    if (state !== undefined) {
      this.#count(drifts, 'reported');
      logger.warn(
        { claim: claimName(identity), device: device.name, drift: describeDrift(drifts) },
        'interface of a VF was changed in its pod',
      );
      events.settingsChangedInPod(identity, podUids, device, `${describeDrift(drifts)}: ${reason}`);
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
      this.#options.logger.warn({ claim: claimName(claim), err }, 'claim status not updated');
    }
  }
}
