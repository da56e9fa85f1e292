import type { Plugin, PluginHandlers } from '../../../nri/index.ts';
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

/** Classes of the driver's own CDI specs: device files, and variables of older dialects. */
export const cdiClasses = { devices: 'device', dialects: 'dialects' } as const;

/** What the driver does, independent of the machine that it runs on. Directories are absolute. */
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
  /** Whether the traffic of VFs is among the figures of the node. */
  vfTraffic: boolean;
  /** Whether metadata follows changes in running pods. */
  liveUpdates: boolean;
  /** Closed fields of VFConfig that claims may set where their DeviceClass does not. */
  openClaimFields: ClosedField[];
  /** What CNI plugins may do. */
  cni: CniRules;
  /** Whether NUMA nodes are offered as lists. */
  listAttributes: boolean;
  /** Whether the API shows the devices of the node: NodeNetworkDevices. */
  nodeView: boolean;
  /** Of the driver. */
  version: string;
  /** Path of a file with an InventoryPolicy. */
  inventoryPolicy?: string | undefined;
  /** Whether NetworkDevicePolicies of the API server come before that file. */
  policyObjects: boolean;
  /** How often stored and actual state are compared, ms. */
  reconcileIntervalMs: number;
}

/** Everything outside of the driver: the operating system and its neighbours, real or simulated (`npm run simulate`). */
export interface NodePorts {
  clock: Clock;
  /** The time that files have. */
  now: () => Date;
  logger: Logger;
  /** From 0 up to 1: spreads requests of many nodes to the API server. */
  random: () => number;
  kernel: KernelPort;
  disk: DiskPort;
  kube: KubeApi;
  kubelet: KubeletPort;
  runtime: RuntimePort;
  /** Runs CNI plugins. */
  cni: CniPlugins & CniCleanUpOptions['runner'];
  observer: NodeObserver;
  /** Replaces a part before others get it, for experiments with faulty ones. */
  decorate?: <Name extends keyof NodeParts>(name: Name, part: NodeParts[Name]) => NodeParts[Name];
}

export interface KernelPort extends Pick<OpenDevicesOptions, 'openCard' | 'policy' | 'nearNodes' | 'devicePlugins'> {
  networks: Networks & { readonly host: { readonly connection: OpenDevicesOptions['host'] } };
  /** The NUMA nodes of the machine. @throws Error if they cannot be read */
  numaNodes: () => NumaNodes;
  /** Reports changes of the host's devices and interfaces. */
  watchHost: (onChange: () => void) => Disposable;
}

export interface DiskPort {
  /** Of the node's current boot. */
  bootId: string;
  store: Store;
  /** The policy file, and the driver's own text files. */
  files: TextFiles;
  /** Shared with other instances of the driver. All work on a claim holds its `claimKey`. */
  locks: Locks;
  /** The start gate's program, once it is installed, and who runs it. */
  gate: StartGatePort;
  /** Runs the removal of files later, and ignores its errors; absent: unprepare waits for it. */
  later?: NonNullable<ClaimMetadataOptions['later']>;
}

/** What keeps containers of this node from starting before their devices are ready. */
export interface StartGatePort {
  /** Absent: containers lack their metadata file until then. */
  hook?: NonNullable<ClaimMetadataOptions['gate']>;
  /** Whether containers of a runtime handler run the hook. */
  runsHooks: (runtimeHandler: string) => boolean;
}

export interface KubeletPort {
  /** Serves a plugin to the kubelet until disposed. */
  serve(
    plugin: DraPlugin,
    options: Pick<KubeletPluginOptions, 'driver' | 'dataDir' | 'claims' | 'onMetadataError' | 'onRegistration'> &
      Required<Pick<KubeletPluginOptions, 'metadata' | 'locks'>>,
  ): Promise<KubeletConnection>;
}

export type KubeletConnection = MetadataCalls &
  Pick<KubeletPluginHelper, 'setHealth' | 'reclaim' | 'prepareAgain' | 'restoreMetadata'> &
  AsyncDisposable;

export interface RuntimePort {
  /** A plugin that connects to the container runtime once it is started. */
  connect(handlers: PluginHandlers): Pick<Plugin, 'start' | 'whenConnected'> & AsyncDisposable;
}

/** What operators see: metrics and readiness. */
export interface NodeObserver {
  plugin(plugin: DraPlugin): DraPlugin;
  files(files: MetadataCalls): MetadataCalls;
  handlers(handlers: PluginHandlers): PluginHandlers;
  /** @param failure why the peer does not know the driver */
  connected(peer: 'kubelet' | 'nri', failure?: string): void;
  /** @param failure why the API server does not have the slices as wanted */
  published(failure?: string): void;
  /** Counts a claim that was not prepared, since its metadata or its CDI specs could not be written. */
  metadataFailed(error: Error): void;
  /** A write to the API server has failed, and is logged. */
  writeFailed(object: ApiObject, error: unknown): void;
  /** Counts a pod that no longer waits for its VFs. */
  waited(result: WaitResult, times: WaitTimes): void;
  /** Counts a failed attempt to attach the VFs of a claim. */
  attachFailed(error: unknown): void;
  /** A container with exclusive CPUs was compared with the NUMA nodes of its devices. */
  numaCompared(result: NumaResult | 'refused'): void;
  /** Counts a setting of a VF in a pod that differs from class and claim. */
  drifted(setting: string, result: DriftResult): void;
  /** Called when the driver starts and at each change. */
  reported(state: DeviceState): void;
  /** Called once, when the driver has started. */
  started(facts: NodeFacts): void;
}

/** What the driver writes to the API server. */
export type ApiObject = 'slices' | 'status' | 'events' | 'nodes';

/** Figures that may be read at any time. */
export interface NodeFacts {
  /** How many devices are offered to the scheduler. */
  devicesOffered(): number;
  deviceCounts(): DeviceCounts;
  /** How many problems there are with reading the node's devices. */
  deviceProblems(): number;
  /** Whether the newest inventory policy, if there is one, is in force. */
  isPolicyValid(): boolean;
  /** How many claims are in each state of the store. */
  claimsByState(): Record<string, number>;
  /** How many devices claims have. */
  devicesUsed(): number;
  /** How many devices are in a pod's sandbox now. */
  devicesAttached(): number;
  /** How long each pod that waits for its VFs has waited, ms. */
  waitsMs(): number[];
  /** Absent: it is not wanted. */
  vfTraffic?: () => Promise<TrafficReport>;
  /** How many requests have a metadata file. */
  metadataFiles(): Promise<number>;
}

/** The parts that {@link NodePorts.decorate} gets. */
export interface NodeParts {
  vfs: VfHost;
  control: VfControl;
  sandboxes: InactiveClaimsOptions['sandboxes'];
  task: ReconcileTask;
}
