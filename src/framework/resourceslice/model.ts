import type { ObjectMeta } from '../kube/index.ts';
import type { DeviceAttributes } from '../metadata/index.ts';

/** All resources that a driver offers on its node, by pool name. A pool that is missing here is withdrawn. */
export interface DriverResources {
  pools: Record<string, Pool>;
}

export interface Pool {
  /** Devices in the order in which the allocator should try them. If there are none, the pool exists without devices. */
  devices: Device[];
  /** Counters that devices of the pool share, e.g. the bandwidth or the VFs of one NIC. */
  sharedCounters?: CounterSet[];
  /** Minimum generation to publish. Absent: generations start with 1 and are incremented automatically. */
  generation?: number;
  /**
   * Maximum number of devices in one slice. Default: 128, or 64 as soon as a device has taints, counters or lists as attribute
   * values. Choose 64 for a pool whose devices may get taints later: the first taint then rewrites only one slice.
   */
  maxDevicesPerSlice?: number;
}

/** A published device. Shape of resource.k8s.io/v1 `Device`. */
export interface Device {
  /** DNS label, unique in the pool. */
  name: string;
  attributes?: DeviceAttributes;
  /** Capacities by name. Names have the same form as for attributes. */
  capacity?: Record<string, DeviceCapacity>;
  taints?: DeviceTaint[];
  /** Shared counters that the device consumes when it is allocated. */
  consumesCounters?: CounterConsumption[];
  /** Whether several claims may have a share of the device at the same time. */
  allowMultipleAllocations?: boolean;
  bindsToNode?: boolean;
  /** Types of conditions that must be true in the claim's status before the scheduler binds the pod. */
  bindingConditions?: string[];
  /** Types of conditions that make the scheduler give up binding. Required if and only if `bindingConditions` are set. */
  bindingFailureConditions?: string[];
}

export interface DeviceCapacity {
  /** Quantity: `10G`, `1500`, `64Mi`. */
  value: string;
  /** Rules for claims that request a part of the capacity. Shape of resource.k8s.io/v1 `CapacityRequestPolicy`. */
  requestPolicy?: object;
}

export const taintEffects = ['None', 'NoSchedule', 'NoExecute'] as const;

/** A taint. It keeps claims without a matching toleration away from the device. */
export interface DeviceTaint {
  /** Label key: `netdra.dev/link-down`. */
  key: string;
  value?: string;
  effect: (typeof taintEffects)[number];
  /** Time of the taint, RFC 3339. Absent: the API server sets the time, which is kept while the taint exists. */
  timeAdded?: string;
}

export interface CounterSet {
  /** DNS label, unique in the pool. */
  name: string;
  counters: Record<string, Counter>;
}

export interface Counter {
  value: string;
}

export interface CounterConsumption {
  /** Name of a {@link CounterSet} of the pool. */
  counterSet: string;
  counters: Record<string, Counter>;
}

/** A ResourceSlice in the shape of resource.k8s.io/v1, with the fields that this package writes. */
export interface ResourceSlice {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta & { name: string };
  spec: SliceSpec;
}

/** Content of one slice: devices or counters. Newer API servers refuse a slice with both. */
export interface SliceContent {
  devices?: Device[];
  sharedCounters?: CounterSet[];
}

export interface SliceSpec extends SliceContent {
  driver: string;
  nodeName: string;
  pool: { name: string; generation: number; resourceSliceCount: number };
}
