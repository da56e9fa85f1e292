import type { AllocatedClaim, PreparedDevice } from '../../framework/kubeletplugin/index.ts';
import {
  baseRequest,
  type CdiSpecs,
  type ClaimIdentity,
  type DeviceAttributes,
  type DeviceName,
} from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { DialectFiles } from '../dialects/index.ts';
import { PodDialects } from '../dialects/pod-dialects.ts';
import type { ClaimDevices, StoredDevice } from '../model/index.ts';
import type { Store } from '../state/index.ts';
import type { DeviceResolver } from './device-resolver.ts';

export interface ContainerSpecsOptions {
  store: Store;
  /** Returns a device's attributes in its ResourceSlice. */
  attributesOf: (pciAddress: string) => DeviceAttributes;
  /** CDI specs for the device files of containers. */
  deviceSpecs: CdiSpecs;
  /** CDI specs and files for software that does not read the metadata. */
  dialectFiles: DialectFiles;
}

/** Everything that containers of a claim get besides the metadata: device files, and variables and files of older dialects. */
export class ContainerSpecs {
  readonly #options: ContainerSpecsOptions;
  readonly #resolver: DeviceResolver;
  readonly #dialects: PodDialects;

  constructor(options: ContainerSpecsOptions, resolver: DeviceResolver) {
    this.#options = options;
    this.#resolver = resolver;
    this.#dialects = new PodDialects({ store: options.store, files: options.dialectFiles });
  }

  /**
   * Checks the variables of a claim's containers. @throws DriverError `config-invalid` if another claim of the pod gives a
   * variable another value
   */
  check(claim: AllocatedClaim, devices: StoredDevice[]): void {
    this.#dialects.check(claim, devices);
  }

  /**
   * Writes CDI specs. @returns the devices of requests that have a spec: the framework itself returns the devices of other
   * requests
   */
  write(claim: ClaimDevices): PreparedDevice[] {
    const { uid } = claim.identity;
    const dialectIds = new Map(this.#dialects.write(claim));
    const prepared: PreparedDevice[] = [];
    for (const device of claim.devices) {
      const { request } = device;
      const dialectId = dialectIds.get(baseRequest(request));
      // The spec goes with the request's first device: a container that has the request gets all of its devices.
      dialectIds.delete(baseRequest(request));
      const cdiDeviceIds = [...this.#writeSpec(uid, device), ...(dialectId === undefined ? [] : [dialectId])];
      prepared.push({ requests: [request], ...toWireName(device), cdiDeviceIds, metadata: 'deferred' });
    }
    const withSpecs = new Set(prepared.flatMap((each) => (each.cdiDeviceIds.length > 0 ? each.requests : [])));
    return prepared.filter(({ requests }) => requests.some((request) => withSpecs.has(request)));
  }

  /** Returns the devices of requests with `adminAccess`, which belong to other claims or to none, with their attributes. */
  observed(claim: AllocatedClaim): PreparedDevice[] {
    return this.#resolver.observed(claim).map((device) => {
      const metadata = { attributes: this.#options.attributesOf(device.pciAddress) };
      return { requests: [device.request], ...toWireName(device), cdiDeviceIds: [], metadata };
    });
  }

  /** Removes the CDI specs of device files. @param uids UIDs of claims */
  removeDevices(uids: readonly string[]): void {
    this.#options.deviceSpecs.removeClaims(uids);
  }

  /** Removes the variables and files of older dialects. */
  removeDialects(identity: ClaimIdentity, devices?: readonly StoredDevice[]): void {
    this.#dialects.remove(identity, devices);
  }

  /** Writes the CDI spec of a device's files. @returns the CDI device ID, if the device has any files */
  #writeSpec(claimUid: string, { name, access, config }: StoredDevice): string[] {
    const { deviceSpecs } = this.#options;
    const nodes = [...new Set(access?.nodes)];
    if (nodes.length === 0) return [];
    const { uid, gid, mode } = config.deviceFiles ?? {};
    const owner = defined({ uid, gid, fileMode: mode === undefined ? undefined : Number.parseInt(mode, 8) });
    deviceSpecs.write(claimUid, name, { deviceNodes: nodes.map((path) => ({ path, permissions: 'rw', ...owner })) });
    return [deviceSpecs.deviceId(claimUid, name)];
  }
}

/** Returns the parts of a device's name under the field names of the kubelet's API. */
function toWireName({ pool: poolName, name: deviceName, shareId }: DeviceName) {
  return { poolName, deviceName, ...defined({ shareId }) };
}
