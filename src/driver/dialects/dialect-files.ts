import { createFile, type HostFile, readFileIfThere, removeFile } from '../../framework/metadata/files/host-file.ts';
import type { CdiSpecs } from '../../framework/metadata/index.ts';
import { fileName, pathPart } from '../../framework/metadata/layouts/paths.ts';
import type { DialectsConfig } from '../model/index.ts';
import type { DialectDevice } from './device.ts';
import { deviceInfoMode } from './device-info.ts';
import { formatEnv, viewInDialects } from './dialects.ts';
import { sriovNetworkPodEnv } from './sriov-network.ts';

/** A request of a claim, with the dialects of its class. */
export interface DialectRequest {
  /** Base name of the request: the part before the slash. */
  name: string;
  config: DialectsConfig;
  /** Devices in allocation order. */
  devices: readonly DialectDevice[];
}

/** Writer of older dialects: variables for containers through CDI, and device-info files on the host. */
export class DialectFiles {
  readonly #options: { specs: CdiSpecs; deviceInfoDir: string };

  /** @param options `specs` must have a CDI class of its own; `deviceInfoDir` is shared with device plugins */
  constructor(options: { specs: CdiSpecs; deviceInfoDir: string }) {
    this.#options = options;
  }

  /**
   * Writes the variables and files of a claim's requests. Replaces an existing device-info file: it is stale, since the
   * device belongs to the claim now.
   * @param podDevices devices of all claims of the pod that use the dialect of dra-driver-sriov
   * @returns CDI device IDs by request; requests without variables have none
   * @throws MetadataError `metadata-io`
   */
  write(
    claimUid: string,
    requests: readonly DialectRequest[],
    podDevices: readonly DialectDevice[],
  ): Map<string, string> {
    const { specs } = this.#options;
    const views = requests.map(({ name, config, devices }) => ({ name, config, ...viewInDialects(config, devices) }));
    for (const { name, text } of views.flatMap(({ deviceInfoFiles }) => deviceInfoFiles)) {
      createFile(this.#deviceInfo(name), text, { mode: deviceInfoMode });
    }
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
   * Removes specs and device-info files of a claim, and temporary files of a killed process. A device-info file does not name
   * its writer: if its content differs, it belongs to a device plugin by now and stays, unless the claim was only partly
   * prepared.
   * @param requests requests of the claim, as far as they are known
   * @throws MetadataError `metadata-io`
   */
  removeClaim(claimUid: string, requests: readonly DialectRequest[]): void {
    this.#options.specs.removeClaims([claimUid]);
    for (const { config, devices } of requests) {
      for (const [index, { name, text }] of viewInDialects(config, devices).deviceInfoFiles.entries()) {
        const file = this.#deviceInfo(name);
        const found = devices[index]?.access && readFileIfThere(file);
        if (found === undefined || found === text) removeFile(file);
      }
    }
  }

  #deviceInfo(name: string): HostFile {
    const parts = [fileName(pathPart(name, 'name of a device-info file'), 'device-info file')];
    return { base: this.#options.deviceInfoDir, parts };
  }
}
