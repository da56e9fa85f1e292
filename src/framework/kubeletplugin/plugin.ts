import type { AllocatedDevice, ResourceClaim } from '../kube/index.ts';
import type { ClaimIdentity, DeviceAttributes, NetworkDeviceData } from '../metadata/index.ts';

/** A claim in the shape of resource.k8s.io/v1, with the fields that drivers read. */
export type ClaimObject = Omit<ResourceClaim, 'status'> & {
  status?: Omit<NonNullable<ResourceClaim['status']>, 'devices'>;
};

/** An allocated resource.k8s.io/v1 claim, checked by the framework. */
export interface AllocatedClaim {
  identity: ClaimIdentity;
  /** Name of the claim in its pod, if it came from a template. */
  podClaimName: string | undefined;
  /** Whether the claim's pod also uses a claim whose own name is `podClaimName`. */
  hasNamesake?: true;
  /** Allocation results of all drivers, in allocation order. */
  results: AllocatedDevice[];
  podUids: string[];
  /**
   * For a claim that the scheduler created for a pod's extended resources (KEP-5004): the resource names under which containers
   * may have requested a request, by the base name of the request. The DeviceClass's own resource name comes before the
   * implicit one.
   */
  extendedResources?: ReadonlyMap<string, readonly string[]>;
  /**
   * For such a claim: the containers that have another request for the same resource, too, by the base name of a request. The
   * scheduler lets an init container share the requests of later containers.
   */
  sharers?: ReadonlyMap<string, readonly string[]>;
  object: ClaimObject;
}

export interface PreparedMetadata {
  attributes?: DeviceAttributes;
  networkData?: NetworkDeviceData;
}

export interface PreparedDevice {
  /**
   * Requests that the device serves, as in the allocation result. Empty: all requests of the claim. Other devices allocated for
   * these requests must be returned as well, or they are deferred.
   */
  requests: string[];
  poolName: string;
  deviceName: string;
  /** Fully qualified CDI names, `vendor/class=name`. */
  cdiDeviceIds: string[];
  /** ID of the device's share; may be left out if the claim has only one share of the device. */
  shareId?: string;
  /**
   * Metadata of the device. `'deferred'`: the file follows in an update. Absent: the file contains only the device's
   * identity.
   */
  metadata?: PreparedMetadata | 'deferred';
}

/**
 * Last step of a driver for one claim. Synchronous, since it runs in a transaction: a returned promise fails the claim
 * (`driver-contract`).
 */
// biome-ignore lint/suspicious/noConfusingVoidType: for a return type of `void` alone, TypeScript accepts async functions
export type LastStep = () => void | undefined;

/**
 * Result of preparing one claim. An allocated device that is not returned for its request is deferred, and its request with it
 * (KEP-5304 "Deferred metadata"): the framework reports the device to the kubelet and mounts the file. A driver whose devices
 * need nothing else in containers may therefore return an empty list. An `error` fails the claim, whatever devices are listed.
 */
export type PrepareResult = PreparedClaim | { error: Error; devices?: undefined };

export interface PreparedClaim {
  devices: PreparedDevice[];
  error?: Error | undefined;
  /**
   * Called in the step that records the claim as prepared: a driver whose `ClaimRecords` are in its own store can write its
   * data in the same transaction. An exception fails the claim. Not called if the claim cannot be recorded; the kubelet then
   * prepares it again.
   */
  commit?: LastStep;
}

/** Result of unpreparing one claim: an error if the claim is still prepared; otherwise nothing, or a last step. */
export type UnprepareResult = Error | undefined | UnpreparedClaim;

export interface UnpreparedClaim {
  /**
   * Called in the step that removes the claim's record, after all its files are removed. An exception fails the claim, and the
   * kubelet unprepares it again.
   */
  discard: LastStep;
}

/**
 * A DRA driver, as the framework calls it. Both methods must be idempotent and return one entry for each claim, by UID; an
 * exception fails the whole call. Calls run one at a time, or with `serialize: false` one at a time for each claim.
 */
export interface DraPlugin {
  /** Prepares claims. @param context `signal` aborts shortly before the kubelet gives up (it waits 45 s) */
  prepareResourceClaims(
    claims: AllocatedClaim[],
    context: { signal: AbortSignal },
  ): Promise<ReadonlyMap<string, PrepareResult>>;
  /** Unprepares claims, which may no longer exist in the API server. A claim that was never prepared is not an error. */
  unprepareResourceClaims(
    claims: ClaimIdentity[],
    context: { signal: AbortSignal },
  ): Promise<ReadonlyMap<string, UnprepareResult>>;
}
