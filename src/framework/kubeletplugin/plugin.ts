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
  /** Whether its pod also uses a claim whose own name is `podClaimName`. */
  hasNamesake?: true;
  /** Allocation results of all drivers, in allocation order. */
  results: AllocatedDevice[];
  podUids: string[];
  /**
   * For a claim that the scheduler made for a pod's extended resources (KEP-5004): by the base name of a request, the
   * resource names under which its containers may have requested it. The class's own name comes before the implicit one.
   */
  extendedResources?: ReadonlyMap<string, readonly string[]>;
  /**
   * For such a claim: by the base name of a request, the containers that have another request for the same resource, too.
   * The scheduler lets an init container share the requests of later containers.
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
   * Requests that the device serves, as in the allocation result. Empty: all requests of the claim; their other devices
   * still have to be returned, or are deferred.
   */
  requests: string[];
  poolName: string;
  deviceName: string;
  /** Fully qualified CDI names, `vendor/class=name`. */
  cdiDeviceIds: string[];
  /** Share of the device; may be left out if the claim has only one. */
  shareId?: string;
  /**
   * Metadata of the device. `'deferred'`: the file follows in an update. Absent: the file contains only the device's
   * identity.
   */
  metadata?: PreparedMetadata | 'deferred';
}

/**
 * Result of preparing one claim. Allocated devices that are not returned for their request are deferred, and with them the
 * request (KEP-5304 "Deferred metadata"): the framework reports them to the kubelet and mounts the file, so that a driver
 * whose devices need nothing else in containers returns an empty list. An `error` fails the claim, whatever devices are listed.
 */
export type PrepareResult = PreparedClaim | { error: Error; devices?: undefined };

export interface PreparedClaim {
  devices: PreparedDevice[];
  error?: Error | undefined;
  /**
   * Called in the step that records the claim as prepared, so that a driver whose `ClaimRecords` are in its own store
   * writes its part in the same transaction. An exception fails the claim. Not called for a claim that cannot be recorded,
   * which the kubelet prepares again.
   */
  commit?: () => void;
}

/** Result of unpreparing one claim: an error if it is still prepared; otherwise nothing, or a last step. */
export type UnprepareResult = Error | undefined | UnpreparedClaim;

export interface UnpreparedClaim {
  /**
   * Called in the step that removes the claim's record, after all its files are removed. An exception fails the claim,
   * which the kubelet unprepares again.
   */
  discard: () => void;
}

/**
 * A DRA driver, as the framework calls it. Both calls must be idempotent and return one entry for each claim, by UID; an
 * exception fails the whole call. They run one at a time, or with `serialize: false` one at a time for each claim.
 */
export interface DraPlugin {
  /** @param context `signal` aborts shortly before the kubelet gives up (it waits 45 s) */
  prepareResourceClaims(
    claims: AllocatedClaim[],
    context: { signal: AbortSignal },
  ): Promise<ReadonlyMap<string, PrepareResult>>;
  /** Claims may no longer exist in the API server. A claim that was never prepared is not an error. */
  unprepareResourceClaims(
    claims: ClaimIdentity[],
    context: { signal: AbortSignal },
  ): Promise<ReadonlyMap<string, UnprepareResult>>;
}
