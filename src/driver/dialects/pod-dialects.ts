import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { baseRequest, type ClaimIdentity } from '../../framework/metadata/index.ts';
import { type ClaimDevices, invalidConfig, type StoredClaim, type StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { Env } from './device.ts';
import { type DialectFiles, type DialectRequest, findEnvConflicts, viewInDialects } from './index.ts';

interface PodDialectsOptions {
  store: StoredClaims;
  files: DialectFiles;
}

/**
 * Older dialects for pods with claims on this node. One variable describes all devices of a pod, so each prepare also
 * rewrites the files of the pod's other claims. Containers start only after the last prepare.
 */
export class PodDialects {
  readonly #options: PodDialectsOptions;

  constructor(options: PodDialectsOptions) {
    this.#options = options;
  }

  /**
   * Checks that the requests of a pod agree on their variables. @throws DriverError `config-invalid` if two requests would
   * give a variable different values
   */
  check(claim: AllocatedClaim, devices: StoredDevice[]): void {
    const { identity, podUids } = claim;
    const parts = [...this.#othersOf({ identity, podUids, devices }), { identity, podUids, devices }].flatMap((each) =>
      requestsOf(each.devices).map((request) => ({
        request: `${each.identity.name}/${request.name}`,
        env: viewInDialects(request.config, request.devices).env,
        extendedResource: request.devices[0]?.extendedResource,
      })),
    );
    const problems = findEnvConflicts(parts).map((problem) => `dialects: ${problem}`);
    if (problems.length > 0) throw invalidConfig(claim, problems);
  }

  /**
   * Writes the variables and files of a claim's requests. The claim must be in the store.
   * @returns CDI device IDs by base name of the request
   * @throws MetadataError `metadata-io`
   */
  write(claim: ClaimDevices): ReadonlyMap<string, string> {
    if (claim.devices.every(({ config }) => config.dialects === undefined)) return new Map();
    const ids = this.#writeClaim(claim);
    const others = this.#othersOf(claim).filter((other) => other.state === 'prepared' && hasPodVariable(other));
    for (const other of others) this.#writeClaim(other);
    return ids;
  }

  /**
   * Removes the variables and files of a claim. In the store, the claim must be `unpreparing` or missing.
   * @param devices devices of the claim; absent: unknown
   * @throws MetadataError `metadata-io`
   */
  remove(identity: ClaimIdentity, devices?: readonly StoredDevice[]): void {
    if (devices?.every(({ config }) => config.dialects === undefined)) return;
    this.#options.files.removeClaim(identity.uid, requestsOf(devices ?? []));
  }

  #writeClaim(claim: ClaimDevices): ReadonlyMap<string, string> {
    const claims = [...this.#othersOf(claim), claim].filter(hasPodVariable);
    // All containers must see the same order, whichever claim was prepared first.
    claims.sort((a, b) => compare(a.identity.name, b.identity.name));
    const podDevices = claims.flatMap(({ devices }) =>
      devices.filter(({ config }) => config.dialects?.sriovNetwork !== undefined),
    );
    return this.#options.files.write(claim.identity.uid, requestsOf(claim.devices), podDevices);
  }

  #othersOf({ identity, podUids }: ClaimDevices): StoredClaim[] {
    const claims = podUids.flatMap((podUid) => this.#options.store.claimsOfPod(podUid));
    return claims.filter((other) => other.identity.uid !== identity.uid && other.state !== 'unpreparing');
  }
}

/**
 * Returns the variables of a container that has several requests for one extended resource. Their values describe the devices
 * of all these requests, in allocation order.
 * @param claims claims of the container's pod
 */
export function containerEnv(claims: readonly ClaimDevices[], container: string): Env {
  const env: Env = {};
  for (const { devices } of claims) {
    const shared = devices.filter(({ sharers }) => sharers?.includes(container) === true);
    for (const group of Map.groupBy(shared, ({ extendedResource }) => extendedResource).values()) {
      const dialects = group[0]?.config.dialects;
      if (dialects !== undefined) Object.assign(env, viewInDialects(dialects, group).env);
    }
  }
  return env;
}

function hasPodVariable({ devices }: ClaimDevices): boolean {
  return devices.some(({ config }) => config.dialects?.sriovNetwork !== undefined);
}

/** Returns the requests that use a dialect, with their devices in allocation order. */
function requestsOf(devices: readonly StoredDevice[]) {
  const requests = new Map<string, DialectRequest & { devices: StoredDevice[] }>();
  for (const device of devices) {
    const name = baseRequest(device.request);
    const known = requests.get(name);
    if (known !== undefined) known.devices.push(device);
    else if (device.config.dialects !== undefined) {
      requests.set(name, { name, config: device.config.dialects, devices: [device] });
    }
  }
  return [...requests.values()];
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
