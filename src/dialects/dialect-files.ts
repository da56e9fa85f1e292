import type { CdiSpecs } from '../metadata/index.ts';
import type { DialectsConfig } from './config.ts';
import type { DialectDevice } from './device.ts';
import type { DeviceInfoFiles } from './device-info-files.ts';
import { formatEnv, viewInDialects } from './dialects.ts';
import { sriovNetworkPodEnv } from './sriov-network.ts';

/** A request of a claim, as its class wants it shown. */
export interface DialectRequest {
  /** Base name: without what is behind a slash. */
  name: string;
  config: DialectsConfig;
  /** In the order of the allocation. */
  devices: readonly DialectDevice[];
}

/** What containers and the host get of claims in older dialects: variables by CDI, device-info files. */
export class DialectFiles {
  readonly #specs: CdiSpecs;
  readonly #deviceInfo: DeviceInfoFiles;

  /** @param options `specs` of a class of their own */
  constructor(options: { specs: CdiSpecs; deviceInfo: DeviceInfoFiles }) {
    this.#specs = options.specs;
    this.#deviceInfo = options.deviceInfo;
  }

  /**
   * Lays down a claim's requests, in the place of what there was of them.
   * @param podDevices of all claims of the pod, as far as they are in the dialect of dra-driver-sriov
   * @returns CDI device ids by request; none of a request without variables
   * @throws MetadataError `metadata-io`
   */
  async write(
    claimUid: string,
    requests: readonly DialectRequest[],
    podDevices: readonly DialectDevice[],
  ): Promise<Map<string, string>> {
    const views = requests.map(({ name, config, devices }) => ({ name, config, ...viewInDialects(config, devices) }));
    await this.#deviceInfo.write(
      claimUid,
      views.flatMap(({ deviceInfoFiles }) => deviceInfoFiles),
    );
    const ids = new Map<string, string>();
    for (const { name, config, env } of views) {
      const whole = { ...env, ...(config.sriovNetwork === undefined ? {} : sriovNetworkPodEnv(podDevices)) };
      if (Object.keys(whole).length === 0) continue;
      await this.#specs.write(claimUid, name, { env: formatEnv(whole) });
      ids.set(name, this.#specs.deviceId(claimUid, name));
    }
    return ids;
  }

  /** @throws MetadataError `metadata-io` */
  async removeClaim(claimUid: string): Promise<void> {
    await this.#specs.removeClaim(claimUid);
    await this.#deviceInfo.removeClaim(claimUid);
  }

  /** UIDs of the claims that have any. */
  async claimUids(): Promise<string[]> {
    return [...new Set([...(await this.#specs.claimUids()), ...(await this.#deviceInfo.claimUids())])];
  }
}
