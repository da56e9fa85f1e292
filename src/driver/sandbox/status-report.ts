import type { ClaimStatusWriter, DeviceStatus } from '../../framework/claimstatus/index.ts';
import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { Store, StoredClaim, StoredDevice } from '../state/index.ts';

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

/**
 * The status of a claim's VFs: the network data is that of its metadata files.
 * @param failure why they are not all in their pod, as a message for users
 */
export function toDeviceStatuses({ devices }: StoredClaim, failure?: string): DeviceStatus[] {
  return devices.map((device) => {
    const { pool, name, attachment } = device;
    const networkData = attachment?.networkData;
    const facts = { pool, device: name, data: toData(device) };
    return failure === undefined && networkData !== undefined
      ? { ...facts, ready: true, reason: 'Attached', networkData }
      : { ...facts, ready: false, reason: 'NotAttached', message: failure ?? 'it is not in the network of the pod' };
  });
}

function toData({ pciAddress, config, access }: StoredDevice): object {
  const attach = config.attach ?? 'netlink';
  return { pciAddress, attach, ...defined({ vlan: config.vf?.vlan, driver: access?.driver }) };
}
