import type {
  V1DeviceAllocationResult,
  V1DeviceClaim,
  V1NodeSelector,
  V1ResourceClaimConsumerReference,
} from '@kubernetes/client-node';

/** The part of an object's metadata that we read and write. Times are RFC 3339 text, as on the wire. */
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
  metadata: { resourceVersion?: string };
  items: T[];
}

/** A condition as in `status.conditions`. Source: meta/v1 `Condition`. */
export interface Condition {
  type: string;
  status: 'True' | 'False' | 'Unknown';
  reason: string;
  message: string;
  /** RFC 3339; when `status` changed last. */
  lastTransitionTime: string;
}

/** One entry of a claim's `status.devices`. Source: resource.k8s.io/v1 `AllocatedDeviceStatus`. */
export interface AllocatedDeviceStatus {
  driver: string;
  pool: string;
  device: string;
  shareID?: string;
  conditions?: Condition[];
  data?: object;
  networkData?: { interfaceName?: string; ips?: string[]; hardwareAddress?: string };
}

/** A claim in the shape of resource.k8s.io/v1, as far as drivers read it. */
export interface ResourceClaim {
  metadata?: ObjectMeta;
  spec: { devices?: V1DeviceClaim };
  status?: {
    allocation?: { devices?: V1DeviceAllocationResult; nodeSelector?: V1NodeSelector };
    reservedFor?: V1ResourceClaimConsumerReference[];
    devices?: AllocatedDeviceStatus[];
  };
}

/** One step of a JSON patch. Source: RFC 6902. */
export type JsonPatchOperation =
  | { op: 'add' | 'replace'; path: string; value: unknown }
  | { op: 'remove'; path: string };
