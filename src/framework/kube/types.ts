// Own types instead of client-node's: with client-node's, users of the framework would need the types of all its dependencies.

/** Metadata fields that the framework reads and writes. Times are RFC 3339 text, as on the wire. */
export interface ObjectMeta {
  name?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface KubeList<T> {
  /** Version of the list, and token of the next page (`continue`), which is absent or empty on the last page. */
  metadata: { resourceVersion?: string; continue?: string };
  items: T[];
}

/** A condition of an object's status, without the time of its last change. */
export interface StatusCondition {
  type: string;
  status: 'True' | 'False' | 'Unknown';
  reason: string;
  message: string;
}

/** A condition as in `status.conditions`. Source: meta/v1 `Condition`. */
export interface Condition extends StatusCondition {
  /** Time of the last change of `status`, RFC 3339. */
  lastTransitionTime: string;
}

/** Name of a device, or of a share of one, in the API. Source: list map keys of `status.devices`. */
export interface DeviceReference {
  driver: string;
  pool: string;
  device: string;
  shareID?: string;
}

/** One entry of a claim's `status.devices`. Source: resource.k8s.io/v1 `AllocatedDeviceStatus`. */
export interface AllocatedDeviceStatus extends DeviceReference {
  conditions?: Condition[];
  data?: object;
  networkData?: { interfaceName?: string; ips?: string[]; hardwareAddress?: string };
}

/** Driver-specific configuration. Source: resource.k8s.io/v1 `OpaqueDeviceConfiguration`. */
interface OpaqueConfiguration {
  driver: string;
  parameters: unknown;
}

/** A request of a claim. Source: resource.k8s.io/v1 `DeviceRequest`, with its `DeviceSubRequest` and `ExactDeviceRequest`. */
interface ClaimRequest {
  name: string;
  exactly?: { deviceClassName: string; adminAccess?: boolean };
  firstAvailable?: { name: string; deviceClassName: string }[];
}

/** A configuration of an allocated claim. Source: resource.k8s.io/v1 `DeviceAllocationConfiguration`. */
export interface AllocatedConfiguration {
  /** Origin of the configuration: `FromClass` or `FromClaim`. */
  source: string;
  /** Requests that the configuration applies to; empty: all. */
  requests?: string[];
  opaque?: OpaqueConfiguration;
}

/** An allocated device. Source: resource.k8s.io/v1 `DeviceRequestAllocationResult`. */
export interface AllocatedDevice extends DeviceReference {
  request: string;
  adminAccess?: boolean;
  /** Consumed capacity by name, as quantities such as `1Gi`. */
  consumedCapacity?: Record<string, string>;
}

/** A claim in the shape of resource.k8s.io/v1, with the fields that drivers read. */
export interface ResourceClaim {
  metadata?: ObjectMeta;
  spec: {
    devices?: { requests?: ClaimRequest[]; config?: { requests?: string[]; opaque?: OpaqueConfiguration }[] };
  };
  status?: {
    allocation?: { devices?: { results?: AllocatedDevice[]; config?: AllocatedConfiguration[] } };
    reservedFor?: { apiGroup?: string; resource: string; name: string; uid: string }[];
    devices?: AllocatedDeviceStatus[];
  };
}

/**
 * The requests of a pod's extended-resource claim that its containers use. Source: core/v1 `PodExtendedResourceClaimStatus`.
 */
export interface PodResources {
  metadata?: ObjectMeta;
  status?: {
    phase?: string;
    extendedResourceClaimStatus?: {
      resourceClaimName: string;
      requestMappings?: { containerName: string; requestName: string; resourceName: string }[];
    };
  };
}

/** The part of a resource.k8s.io/v1 DeviceClass that drivers read. */
export interface DeviceClass {
  metadata: ObjectMeta;
  spec: { config?: { opaque?: OpaqueConfiguration }[]; extendedResourceName?: string };
}

/** One step of a JSON patch. Source: RFC 6902. */
export type JsonPatchOperation =
  | { op: 'add' | 'replace'; path: string; value: unknown }
  | { op: 'remove'; path: string };
