import { ClaimStatusWriter, withClaimStatus } from '../../framework/claimstatus/index.ts';
import { isPodWanted, ResourceApi } from '../../framework/kube/index.ts';
import type { DraPlugin } from '../../framework/kubeletplugin/index.ts';
import {
  CdiSpecs,
  type ClaimIdentity,
  ClaimMetadata,
  type ClaimMetadataOptions,
  claimName,
  layouts,
} from '../../framework/metadata/index.ts';
import { createSliceApi, SlicePublisher } from '../../framework/resourceslice/index.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import { shared } from '../../lib/shared.ts';
import { parseCidr } from '../../node/netlink/index.ts';
import {
  checkAllocation,
  createKubeNamespaceReader,
  createKubeNetworkAttachmentReader,
  DeviceClasses,
  Driver,
} from '../claims/index.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { reportDevices, reportHealth } from '../devices/device-report.ts';
import { heldBy } from '../devices/held-devices.ts';
import type { InventoryView } from '../devices/inventory-view.ts';
import { LacpRelay } from '../devices/lacp-relay.ts';
import { openDevices } from '../devices/open-devices.ts';
import { DialectFiles } from '../dialects/index.ts';
import { DriftRecord, DriftReport, podDriftOf } from '../drift/index.ts';
import { EventWriter, FailureEvents, withClaimEvents, withPodEvents } from '../events/index.ts';
import { CniCleanUp, endEarlierBoots, RecordedFiles } from '../recovery/index.ts';
import { createSandboxSide, NumaGuard, type SandboxRegistry, StatusReport } from '../sandbox/index.ts';
import { type Store, StoredRecords } from '../state/index.ts';
import { CniAttacher } from '../vf/cni-attacher.ts';
import { Attachments } from '../vf/index.ts';
import { createNodeView } from './create-node-view.ts';
import { createPolicySource } from './create-policy-source.ts';
import { createReconciler } from './create-reconciler.ts';
import { nodeFacts } from './node-facts.ts';
import { cdiClasses, type KubeletSide, type NodePorts, type NodeSettings } from './ports.ts';

/** One look for the claims of many pods that start at once. What changes within this time could as well change after a prepare. */
const nodeNetworksKeptMs = 1_000;

/** The driver of one node. Disposing stops it; prepared claims stay prepared, and the ports stay open. */
export interface NetworkNode extends AsyncDisposable {
  /** Serves sandboxes whose containers wait, connects to the runtime, and offers the devices. */
  start(): Promise<void>;
  /** Waits until the runtime delivers pod events. @throws ConnectionClosedError if the driver stops first */
  whenConnected(): Promise<void>;
  /** The devices, for the tools of the node. @throws NetdraError `devices-unlisted`; StateError */
  inventory(): InventoryView;
}

interface Base extends NodePorts {
  settings: NodeSettings;
  /** Owner of the parts. */
  stack: AsyncDisposableStack;
  decorate: NonNullable<NodePorts['decorate']>;
  resources: ResourceApi;
  podUidsOf: (claim: ClaimIdentity) => string[];
  /** Settings of VFs in pods that differ from class and claim. */
  drift: DriftRecord;
}

interface Parts
  extends ReturnType<typeof createAttachments>,
    ReturnType<typeof createReports>,
    ReturnType<typeof createClaims> {
  devices: DeviceList;
  metadata: ClaimMetadata;
  kubelet: KubeletSide;
}

/**
 * Composes the driver of a node from its parts. From here on, calls of the kubelet are served.
 * @throws NetdraError of the part that cannot be created
 */
export async function createNode(ports: NodePorts, settings: NodeSettings): Promise<NetworkNode> {
  await using stack = new AsyncDisposableStack();
  const { logger, kube, observer, decorate = (_name, part) => part } = ports;
  const { store } = ports.disk;
  const { driverName: driver, nodeName: node } = settings;
  const podUidsOf = podUidsFrom(store);
  const resources = new ResourceApi(kube);
  const base: Base = { ...ports, settings, stack, decorate, resources, podUidsOf, drift: new DriftRecord() };

  // Until it exists, this instance has served no sandbox, and serves all of them once it does.
  let sandboxes: SandboxRegistry | undefined;
  const { metadata, devices } = await findDevices(base, {
    onPending: (claim) => sandboxes?.requeuePods(podUidsOf(claim)),
    onPrepared: (claim) => claims.driver.complete(claim),
    onUnprepared: (claim) => claims.driver.forget(claim),
  });
  const moves = createAttachments(base, devices, (podUid) => sandboxes?.requeuePods([podUid]));
  const reports = createReports(base, devices, metadata);
  const { publisher, events, status } = reports;
  const claims = createClaims(base, { devices, metadata, attachments: moves.attachments, events });
  const plugin = withClaimEvents(observer.plugin(withClaimStatus(claims.driver, reports.statusWriter)), events);
  const kubelet = await serveKubelet(base, plugin, metadata, publisher);
  const parts: Parts = { ...moves, ...reports, ...claims, devices, metadata, kubelet };
  const { hooks, registry, deletedPods, waitingSandboxes } = createSandboxes(base, parts, () => reconciler.nudge());
  sandboxes = registry;
  const runtime = stack.use(
    ports.runtime.connect({
      ...observer.handlers(withPodEvents(hooks, events)),
      connected: () => observer.connected('nri'),
      disconnected: (error) => {
        hooks.disconnected();
        observer.connected('nri', error === undefined ? 'closed' : explain(error));
      },
    }),
  );
  const files = new RecordedFiles(kubelet, logger);
  const reconciler = createReconciler({ ...base, ...parts, files, registry, nudge: () => reconciler.nudge() });
  const reported = { node, devices, store, publisher, kubelet, events, observer };
  const follow = createFollowers(base, parts);
  const report = () => {
    reportDevices(reported);
    follow();
  };
  const owned = stack.move();
  return {
    async start() {
      await files.restore();
      // The runtime registers us once every sandbox has answered it; one whose containers are waiting does not answer.
      await waitingSandboxes.serve();
      runtime.start();
      for (const part of [waitingSandboxes, moves.cniCleanUp, reconciler, deletedPods]) part.start();
      status.reportAttached();
      report();
      devices.watch(report, () => {
        reportHealth(reported);
        follow();
      });
      observer.started(nodeFacts({ ...base, devices, metadata, sandboxes: registry }));
      logger.info({ driver, node, devices: devices.offered().length }, 'driver started');
    },
    whenConnected: async () => void (await runtime.whenConnected()),
    inventory: () => devices.view(store.claims()),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Pods of a claim; none if the store cannot be read, which the work that needs it reports. */
function podUidsFrom(store: Store) {
  return ({ uid }: ClaimIdentity): string[] => {
    try {
      return store.claim(uid)?.podUids ?? [];
    } catch {
      return [];
    }
  };
}

async function findDevices(base: Base, on: Pick<ClaimMetadataOptions, 'onPending' | 'onPrepared' | 'onUnprepared'>) {
  const { disk, clock, now, logger, settings, stack } = base;
  const { networks, ...sources } = base.kernel;
  const { driverName: driver, nodeName, dataDir, stateDir, listAttributes } = settings;
  const { attributesDir, downwardApiDir } = settings;
  const { store, bootId, gate, later } = disk;
  const metadata = new ClaimMetadata({
    driver,
    dataDir,
    cdiDir: settings.cdiDir,
    bootId,
    now,
    marker: 'NETDRA_CLAIM_',
    layouts: settings.metadataLayouts.map((name) => layouts[name]),
    versions: settings.metadataVersions,
    // Claims that already have metadata keep it, so the object is always built.
    enabled: settings.enableDeviceMetadata,
    attributesOf: ({ pool, name }) => {
      const device = pool === nodeName ? devices.find(name) : undefined;
      return device && devices.attributesOf(device.pciAddress);
    },
    onRecovered: (claim, err) => {
      const log = { claim: claimName(claim), claimUid: claim.uid, err };
      logger.warn(log, 'damaged record of a claim is written anew');
    },
    records: new StoredRecords({ store, dataDir }),
    ...on,
    ...defined({ later, gate: gate.hook, attributesDir, downwardApiDir }),
  });
  // Must run before anything reads the VF snapshots of an earlier boot.
  await endEarlierBoots({ store, withdraw: (claim) => metadata.withdraw(claim), logger });
  const { connection: host, ethtool } = networks.host;
  const devices = stack.use(
    await openDevices(settings, {
      driver,
      host,
      stateDir,
      store,
      clock,
      now,
      logger,
      listAttributes,
      ...sources,
      held: heldBy(store),
      unrestored: () => store.unrestored(),
      settingsLost: () => base.drift.lost(),
      ...defined({ ethtool, policy: sources.policy ?? createPolicySource(base) }),
    }),
  );
  return { metadata, devices };
}

function createAttachments(
  { kernel, disk: { store }, cni: runner, clock, logger, stack, decorate }: Base,
  devices: DeviceList,
  onConflict: (podUid: string) => void,
) {
  const cni = new CniAttacher({ runner, clock, logger });
  return {
    attachments: new Attachments({
      networks: kernel.networks,
      vfs: decorate('vfs', devices.vfs),
      cni,
      store,
      clock,
      logger,
      onConflict,
    }),
    cniCleanUp: stack.use(new CniCleanUp({ runner, store, clock, logger })),
  };
}

/** Reports to the API server; they may be late. */
function createReports(
  { kube, resources, observer, stack, podUidsOf, drift, ...base }: Base,
  devices: DeviceList,
  metadata: ClaimMetadata,
) {
  const { clock, logger, random, disk, settings } = base;
  const { driverName: driver, nodeName } = settings;
  const options = { controller: driver, instance: nodeName, clock, logger };
  const onError = (error: unknown) => observer.writeFailed('events', error);
  const events = new FailureEvents(stack.use(new EventWriter(kube, { ...options, onError })));
  const sliceApi = createSliceApi(kube, resources, { driver, nodeName });
  let slicesFailure: string | undefined | null = null;
  const publisher = stack.use(
    new SlicePublisher(sliceApi, {
      driver,
      nodeName,
      clock,
      logger,
      random,
      onError: (error) => {
        slicesFailure = explain(error);
        observer.published(slicesFailure);
        observer.writeFailed('slices', error);
        events.slicesNotPublished(nodeName, error);
        devices.notPublished(error);
      },
      onSynced: () => {
        slicesFailure = undefined;
        observer.published();
        events.slicesNotPublished(nodeName, undefined);
      },
    }),
  );
  const statusWriter = stack.use(
    new ClaimStatusWriter(resources, {
      driver,
      pool: nodeName,
      clock,
      logger,
      random,
      onPersistentFailure: (claim, error) => events.statusNotWritten(claim, podUidsOf(claim), error),
      onError: (error) => observer.writeFailed('status', error),
    }),
  );
  const { store } = disk;
  const numa = new NumaGuard({
    store,
    metadata,
    numaNodes: base.kernel.numaNodes,
    onCompared: (result) => observer.numaCompared(result),
    onMisaligned: (pod, claim, reason) => events.numaMisaligned(pod, claim, reason),
    onCondition: (claim) => {
      try {
        status.report(claim);
      } catch (err) {
        logger.warn({ claim: claimName(claim), err }, 'claim status not updated');
      }
    },
  });
  const status = new StatusReport({ store, metadata, writer: statusWriter, numa, drift });
  const drifted = new DriftReport({
    record: drift,
    events,
    logger,
    onDrift: (setting, result) => observer.drifted(setting, result),
    onCondition: (claim) => status.report(claim),
  });
  return { sliceApi, publisher, slicesFailure: () => slicesFailure, events, statusWriter, status, numa, drifted };
}

function createClaims(
  { kube, resources, kernel, disk, settings, stack, ...base }: Base,
  {
    devices,
    metadata,
    attachments,
    events,
  }: { devices: DeviceList; metadata: ClaimMetadata; attachments: Attachments; events: FailureEvents },
) {
  const { clock, logger, random } = base;
  const { driverName: driver, nodeName, cdiDir: dir } = settings;
  const { store } = disk;
  const control = base.decorate('control', devices.vfs.control);
  const deviceSpecs = new CdiSpecs({ dir, driver, class: cdiClasses.devices });
  const dialectFiles = new DialectFiles({
    specs: new CdiSpecs({ dir, driver, class: cdiClasses.dialects }),
    deviceInfoDir: settings.deviceInfoDir,
  });
  const classes = stack.use(new DeviceClasses({ resources, clock, logger, random }));
  const networkDriver = new Driver({
    driver,
    store,
    attachments,
    control,
    deviceSpecs,
    dialectFiles,
    clock,
    logger,
    inventory: { pool: nodeName, find: (name) => devices.findUsable(name) },
    withdrawMetadata: (claim) => metadata.withdraw(claim),
    isShownByContainers: (claim) => metadata.isShownByContainers(claim),
    attributesOf: (pciAddress) => devices.attributesOf(pciAddress),
    networkAttachments: createKubeNetworkAttachmentReader(kube),
    namespaces: createKubeNamespaceReader(kube),
    cni: settings.cni,
    checkAllocation: (claim) => checkAllocation(driver, classes, claim),
    openClaimFields: settings.openClaimFields,
    onSlow: (claim, progress) => events.slowToPrepare(claim, progress),
    onShared: (claim, what) => events.portShared(claim, what),
    nodeNetworks: shared(
      async () => {
        const addresses = await kernel.networks.host.connection.reachableAddresses();
        return addresses.filter(({ scope }) => scope === 'global').map(({ cidr }) => parseCidr(cidr));
      },
      { ms: nodeNetworksKeptMs, clock },
    ),
  });
  return { driver: networkDriver, control };
}

async function serveKubelet(
  { kubelet, disk: { locks }, observer, resources, settings, stack }: Base,
  plugin: DraPlugin,
  metadata: ClaimMetadata,
  publisher: SlicePublisher,
): Promise<KubeletSide> {
  const { driverName: driver, dataDir } = settings;
  return stack.use(
    await kubelet.serve(plugin, {
      driver,
      dataDir,
      claims: resources,
      metadata,
      locks,
      // The kubelet deletes our slices while the driver is unavailable.
      onRegistration: (registration) => {
        observer.connected('kubelet', registration.registered ? undefined : `refused: ${registration.error}`);
        if (registration.registered) publisher.recheck();
      },
    }),
  );
}

function createSandboxes(
  { kube, kernel, disk, settings, stack, podUidsOf, ...base }: Base,
  parts: Parts,
  nudge: () => void,
) {
  const { store, locks, gate } = disk;
  const { devices, metadata, attachments, events, status, numa, driver, kubelet, drifted } = parts;
  const { clock, logger, observer } = base;
  const side = createSandboxSide({
    driver: settings.driverName,
    store,
    locks,
    attachments,
    networks: kernel.networks,
    metadata,
    clock,
    logger,
    files: observer.files(kubelet),
    numa,
    attributesOf: (pciAddress) => devices.attributesOf(pciAddress),
    assure: (claim, device) => driver.assure(claim, device),
    onRead: (claim, device, state) => drifted.podCompared(claim, device, podDriftOf(device, state)),
    isWanted: (pod, signal) => isPodWanted(kube, pod, signal),
    runsHooks: gate.runsHooks,
    liveUpdates: settings.liveUpdates,
    onWritten: (claim, isSettled) => status.report(claim, isSettled),
    onWaited: (result, times) => observer.waited(result, times),
    onFailure: (claim, reason, error) => {
      observer.attachFailed(error);
      status.report(claim, true, reason);
      events.notAttached(claim, podUidsOf(claim), reason);
    },
    onFlapping: (claim) => events.flapping(claim, podUidsOf(claim)),
    onSlow: (pod, claim, progress) => events.slowToAttach(pod, claim, progress),
    onSynchronized: nudge,
    onOtherPod: nudge,
  });
  for (const part of [side.registry, side.deletedPods, side.waitingSandboxes]) stack.use(part);
  return side;
}

/** What is to be called after each look at the devices. */
function createFollowers(base: Base, parts: Parts): () => void {
  const { disk, logger, stack } = base;
  const { store, locks } = disk;
  const { devices, control, sliceApi, slicesFailure } = parts;
  const relay = stack.use(new LacpRelay({ devices, store, control, locks, logger }));
  const view = stack.use(createNodeView({ ...base, devices, sliceApi, slicesFailure }));
  return () => {
    void relay.follow();
    view?.note();
  };
}
