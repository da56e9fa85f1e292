import type { ClaimStatusWriter } from '../../framework/claimstatus/index.ts';
import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import type { Store } from '../state/index.ts';
import { toDeviceStatuses } from './device-status.ts';

export interface StatusReportOptions {
  store: Pick<Store, 'claim' | 'claims'>;
  writer: Pick<ClaimStatusWriter, 'set'>;
}

/** Reports where the VFs of prepared claims are, in the status of the claims. */
export class StatusReport {
  readonly #options: StatusReportOptions;

  constructor(options: StatusReportOptions) {
    this.#options = options;
  }

  /**
   * @param isSettled `false` if the state will change soon
   * @param failure why the VFs are not in their pod, as a message for users
   */
  report(claim: ClaimIdentity, isSettled = true, failure?: string): void {
    const { store, writer } = this.#options;
    const stored = store.claim(claim.uid);
    if (stored?.state === 'prepared') writer.set(claim, toDeviceStatuses(stored, failure), isSettled);
  }

  /** For the start: reports what could not be written before the driver was stopped. */
  reportAttached(): void {
    for (const { identity, devices } of this.#options.store.claims()) {
      if (devices.some(({ attachment }) => attachment?.networkData !== undefined)) this.report(identity);
    }
  }
}
