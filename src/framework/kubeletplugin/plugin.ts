import type { AllocatedDevice, ResourceClaim } from '../kube/index.ts';
import type { ClaimIdentity, DeviceAttributes, NetworkDeviceData } from '../metadata/index.ts';

/** A claim in the shape of resource.k8s.io/v1, as far as drivers read it. */
export type ClaimObject = Omit<ResourceClaim, 'status'> & {
  status?: Omit<NonNullable<ResourceClaim['status']>, 'devices'>;
};

/** An allocated resource.k8s.io/v1 claim; the framework has checked it before a driver sees it. */
export interface AllocatedClaim {
  identity: ClaimIdentity;
  /** The pod's name for it if it came from a template. */
  podClaimName: string | undefined;
  /** Allocation results of all drivers, in the order of the allocator. */
  results: AllocatedDevice[];
  podUids: string[];
  /**
   * Of a claim that the scheduler has made for a pod's extended resources (KEP-5004): by the base name of a request, the names
   * by which its containers may have asked for it. The name that the class has comes before the implicit one.
   */
  extendedResources?: ReadonlyMap<string, readonly string[]>;
  /**
   * Of such a claim: by the base name of a request, the containers that have another request for the same resource, too. The
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
  /** Requests that it serves, as in the allocation result; empty means all requests of the claim. */
  requests: string[];
  poolName: string;
  deviceName: string;
  /** Fully qualified CDI names, `vendor/class=name`. */
  cdiDeviceIds: string[];
  shareId?: string;
  /** `'deferred'`: the file follows in an update. Absent: a file with the device's identity only. */
  metadata?: PreparedMetadata | 'deferred';
}

/**
 * Result of preparing one claim. A request of the allocation for which it has no device is deferred (KEP-5304 "Deferred metadata"):
 * the framework tells the kubelet its allocated devices and mounts its file, so a driver whose devices need nothing else in
 * containers returns an empty list. An `error` fails the claim, whatever devices stand beside it.
 */
export type PrepareResult = PreparedClaim | { error: Error; devices?: undefined };

export interface PreparedClaim {
  devices: PreparedDevice[];
  error?: Error | undefined;
  /**
   * Called in the step that records the claim as prepared, so that a driver whose `ClaimRecords` are in its own store
   * stores its part in the same transaction. What it throws fails the claim. It is not called for a claim that cannot be
   * recorded, which the kubelet prepares again.
   */
  commit?: () => void;
}

/** Result of unpreparing one claim: why it is still prepared; or that it no longer is, perhaps with a last step. */
export type UnprepareResult = Error | undefined | UnpreparedClaim;

export interface UnpreparedClaim {
  /**
   * Called in the step that removes the claim's record, after all its files are gone. What it throws fails the claim, which
   * the kubelet unprepares again.
   */
  discard: () => void;
}

/**
 * A DRA driver, as the framework calls it. Both calls must be idempotent and return one entry for each claim, by UID;
 * throwing fails the whole call. They run one at a time, or with `serialize: false` one at a time for each claim.
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
