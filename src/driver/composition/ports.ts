import type { DecodeOptions, Plugin, PluginHandlers } from '../../../nri/index.ts';
import type { KubeApi } from '../../framework/kube/index.ts';
import type { DraPlugin, KubeletPluginHelper, KubeletPluginOptions } from '../../framework/kubeletplugin/index.ts';
import type { ClaimMetadataOptions, LayoutName, MetadataVersion } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import type { TextFiles } from '../../lib/text-files.ts';
import type { NumaNodes } from '../../node/numa/index.ts';
import type { CniRules } from '../api/cni-rules.ts';
import type { DeviceCounts } from '../devices/device-counts.ts';
import type { DeviceState } from '../devices/device-state.ts';
import type { OpenDevicesOptions, SimulationSettings } from '../devices/open-devices.ts';
import type { DriftResult } from '../drift/index.ts';
import type { ClosedField } from '../model/index.ts';
import type { CniCleanUpOptions, InactiveClaimsOptions, ReconcileTask } from '../recovery/index.ts';
import type { MetadataCalls, NumaResult, WaitResult, WaitTimes } from '../sandbox/index.ts';
import type { Store } from '../state/index.ts';
import type { CniPlugins } from '../vf/cni-attacher.ts';
import type { TrafficReport, VfControl, VfHost } from '../vf/index.ts';
import type { Networks } from '../vf/networks.ts';

/** CDI classes of the driver's own specs: device files, and variables of older dialects. */
export const cdiClasses = { devices: 'device', dialects: 'dialects' } as const;

/** Settings of the driver that do not depend on the machine. Directories are absolute. */
export interface NodeSettings extends SimulationSettings {
  driverName: string;
  nodeName: string;
  /** The driver's own directory below the kubelet's `plugins`. */
  dataDir: string;
  stateDir: string;
  cdiDir: string;
  metadataLayouts: LayoutName[];
  metadataVersions: MetadataVersion[];
  /** Host directory for the layout `attributes-json`; absent: the same path as in the container. */
  attributesDir?: string;
  /** Host directory for the layout `downward-api`, with a directory for each pod; absent: `/etc/dra`. */
  downwardApiDir?: string;
  /** Host directory for device-info files. */
  deviceInfoDir: string;
  enableDeviceMetadata: boolean;
  /** Whether to report the traffic of VFs. */
  vfTraffic: boolean;
  /** Whether metadata follows changes in running pods. */
  liveUpdates: boolean;
  /** Closed fields of VFConfig that claims may set unless their DeviceClass sets them. */
  openClaimFields: ClosedField[];
  /** Rules for CNI plugins. */
  cni: CniRules;
  /** Whether to offer NUMA nodes as list attributes. */
  listAttributes: boolean;
  /** Whether to publish the node's devices as a NodeNetworkDevices object. */
  nodeView: boolean;
  /** Version of the driver. */
  version: string;
  /** Path of a file with an InventoryPolicy. */
  inventoryPolicy?: string | undefined;
  /** Whether NetworkDevicePolicies of the API server take precedence over `inventoryPolicy`. */
  policyObjects: boolean;
  /** Namespace of the SR-IOV network operator. VFs are tainted while it changes the node. */
  sriovOperator?: string | undefined;
  /** Interval of reconciliation rounds, ms. */
  reconcileIntervalMs: number;
}

/**
 * Interfaces to everything outside of the driver: operating system, kubelet, runtime and API server. They are real or
 * simulated (`npm run simulate`).
 */
export interface NodePorts {
  clock: Clock;
  /** Clock for times that are stored or shown. */
  now: () => Date;
  logger: Logger;
  /** Returns numbers from 0 up to 1. They spread the requests of many nodes to the API server. */
  random: () => number;
  kernel: KernelPort;
  disk: DiskPort;
  kube: KubeApi;
  kubelet: KubeletPort;
  runtime: RuntimePort;
  /** Runs CNI plugins. */
  cni: CniPlugins & CniCleanUpOptions['runner'];
  observer: NodeObserver;
  /** Replaces a part before other parts get it, for tests with faulty parts. */
  decorate?: <Name extends keyof NodeParts>(name: Name, part: NodeParts[Name]) => NodeParts[Name];
}

export interface KernelPort extends Pick<OpenDevicesOptions, 'openCard' | 'policy' | 'nearNodes' | 'devicePlugins'> {
  networks: Networks & { readonly host: { readonly connection: OpenDevicesOptions['host'] } };
  /** Returns the NUMA nodes of the machine. @throws Error if they cannot be read */
  numaNodes: () => NumaNodes;
  /** Calls `onChange` at changes of the host's devices and interfaces, until disposed. */
  watchHost: (onChange: () => void) => Disposable;
}

export interface DiskPort {
  /** ID of the node's current boot. */
  bootId: string;
  store: Store;
  /** The policy file, and the driver's own text files. */
  files: TextFiles;
  /** Locks that exclude other instances of the driver. All work on a claim holds its `claimKey`. */
  locks: Locks;
  /** Start gate: its installed program, and the runtime handlers that run it. */
  gate: StartGatePort;
  /** Removes files in the background, ignoring errors; absent: unprepare waits until they are removed. */
  later?: NonNullable<ClaimMetadataOptions['later']>;
}

/** Start gate, which keeps containers of this node from starting before their devices are ready. */
export interface StartGatePort {
  /**
   * OCI hook in which containers wait; absent: the metadata file is missing until the devices are ready, and containers fail
   * until then.
   */
  hook?: NonNullable<ClaimMetadataOptions['gate']>;
  /** Returns whether a runtime handler runs OCI hooks. */
  runsHooks: (runtimeHandler: string) => boolean;
}

export interface KubeletPort {
  /** Serves a plugin to the kubelet until the connection is disposed. */
  serve(
    plugin: DraPlugin,
    options: Pick<
      KubeletPluginOptions,
      'driver' | 'dataDir' | 'claims' | 'onMetadataError' | 'onRegistration' | 'onSocketLost'
    > &
      Required<Pick<KubeletPluginOptions, 'metadata' | 'locks'>>,
  ): Promise<KubeletConnection>;
}

export type KubeletConnection = MetadataCalls &
  Pick<KubeletPluginHelper, 'setHealth' | 'reclaim' | 'prepareAgain' | 'restoreMetadata'> &
  AsyncDisposable;

export interface RuntimePort {
  /**
   * Creates a plugin that connects to the container runtime when it is started.
   * @param decode fields of pods and containers that the handlers get
   */
  connect(handlers: PluginHandlers, decode: DecodeOptions): Pick<Plugin, 'start' | 'whenConnected'> & AsyncDisposable;
}

/** Receiver of everything that operators see as metrics and readiness. */
export interface NodeObserver {
  plugin(plugin: DraPlugin): DraPlugin;
  files(files: MetadataCalls): MetadataCalls;
  handlers(handlers: PluginHandlers): PluginHandlers;
  /**
   * Records whether the kubelet or the runtime is connected. @param failure why the peer does not know the driver; absent: it
   * does
   */
  connected(peer: 'kubelet' | 'nri', failure?: string): void;
  /**
   * Records the result of publishing slices. @param failure why the API server does not have the wanted slices; absent: it
   * has them
   */
  published(failure?: string): void;
  /** Counts a claim that was not prepared because its metadata or its CDI specs could not be written. */
  metadataFailed(error: Error): void;
  /** Counts a failed write to the API server, which is already logged. */
  writeFailed(object: ApiObject, error: unknown): void;
  /** Counts a pod that no longer waits for its VFs. */
  waited(podUid: string, result: WaitResult, times: WaitTimes): void;
  /** Counts a failed attempt to attach the VFs of a claim. */
  attachFailed(error: unknown): void;
  /** Counts the comparison of a container with exclusive CPUs with the NUMA nodes of its devices. */
  numaCompared(result: NumaResult | 'refused'): void;
  /** Counts a setting of a VF in a pod that differs from class and claim. */
  drifted(setting: string, result: DriftResult): void;
  /** Receives the device state when the driver starts and at each change. */
  reported(state: DeviceState): void;
  /** Receives the node's figures once the driver has started. */
  started(facts: NodeFacts): void;
}

/** Kinds of objects that the driver writes to the API server. */
export type ApiObject = 'slices' | 'status' | 'events' | 'nodes';

/** Functions that return figures of the node; all can be called at any time. */
export interface NodeFacts {
  /** Returns the number of devices offered to the scheduler. */
  devicesOffered(): number;
  deviceCounts(): DeviceCounts;
  /** Returns the number of problems with reading the node's devices. */
  deviceProblems(): number;
  /** Returns whether the newest inventory policy, if there is one, is in force. */
  isPolicyValid(): boolean;
  /** Returns the number of claims in each state of the store. */
  claimsByState(): Record<string, number>;
  /** Returns the number of claimed devices. */
  devicesUsed(): number;
  /** Returns the number of devices that are in a pod's sandbox now. */
  devicesAttached(): number;
  /** Returns how long each pod that waits for its VFs has waited, ms. */
  waitsMs(): number[];
  /** Reads the traffic of VFs; absent if the settings turn it off. */
  vfTraffic?: () => Promise<TrafficReport>;
  /** Returns the number of requests that have a metadata file. */
  metadataFiles(): Promise<number>;
}

/** Parts that {@link NodePorts.decorate} can replace. */
export interface NodeParts {
  vfs: VfHost;
  control: VfControl;
  sandboxes: InactiveClaimsOptions['sandboxes'];
  task: ReconcileTask;
}
