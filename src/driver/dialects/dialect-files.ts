import type { CdiSpecs } from '../../framework/metadata/index.ts';
import type { DialectsConfig } from './config.ts';
import type { DialectDevice } from './device.ts';
import type { DeviceInfoFiles } from './device-info-files.ts';
import { formatEnv, viewInDialects } from './dialects.ts';
import { sriovNetworkPodEnv } from './sriov-network.ts';

/** A request of a claim, with the dialects of its class. */
export interface DialectRequest {
  /** Base name: the part before the slash. */
  name: string;
  config: DialectsConfig;
  /** In the order of the allocation. */
  devices: readonly DialectDevice[];
}

/** Writes claims in older dialects: variables for containers by CDI, and device-info files on the host. */
export class DialectFiles {
  readonly #options: { specs: CdiSpecs; deviceInfo: DeviceInfoFiles };

  /** @param options `specs` has a CDI class of its own */
  constructor(options: { specs: CdiSpecs; deviceInfo: DeviceInfoFiles }) {
    this.#options = options;
  }

  /**
   * Writes a claim's requests, in place of what it had before.
   * @param podDevices of all claims of the pod that use the dialect of dra-driver-sriov
   * @returns CDI device ids by request; requests without variables have none
   * @throws MetadataError `metadata-io`
   */
  write(
    claimUid: string,
    requests: readonly DialectRequest[],
    podDevices: readonly DialectDevice[],
  ): Map<string, string> {
    const { specs, deviceInfo } = this.#options;
    const views = requests.map(({ name, config, devices }) => ({ name, config, ...viewInDialects(config, devices) }));
    deviceInfo.write(
      claimUid,
      views.flatMap(({ deviceInfoFiles }) => deviceInfoFiles),
    );
    const ids = new Map<string, string>();
    for (const { name, config, env } of views) {
      const whole = { ...env, ...(config.sriovNetwork === undefined ? {} : sriovNetworkPodEnv(podDevices)) };
      if (Object.keys(whole).length === 0) continue;
      specs.write(claimUid, name, { env: formatEnv(whole) });
      ids.set(name, specs.deviceId(claimUid, name));
    }
    return ids;
  }

  /**
   * @param requests those of the claim if its devices are known; otherwise the record names its device-info files
   * @throws MetadataError `metadata-io`; without `requests`, `metadata-malformed` for a damaged record
   */
  removeClaim(claimUid: string, requests?: readonly DialectRequest[]): void {
    this.#options.specs.removeClaims([claimUid]);
    const known = requests?.flatMap(({ config, devices }) => viewInDialects(config, devices).deviceInfoFiles);
    this.#options.deviceInfo.removeClaim(claimUid, known);
  }
}
