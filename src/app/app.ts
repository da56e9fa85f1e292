import { join } from 'node:path';
import { createPlugin } from '../../nri/index.ts';
import packageInfo from '../../package.json' with { type: 'json' };
import {
  AllocationCheck,
  createKubeNamespaceReader,
  createKubeNetworkAttachmentReader,
  DeviceClasses,
  Driver,
} from '../driver/claims/index.ts';
import { deviceHealth } from '../driver/devices/device-health.ts';
import type { DeviceList } from '../driver/devices/device-list.ts';
import { heldDevices } from '../driver/devices/held-devices.ts';
import { openDevices } from '../driver/devices/open-devices.ts';
import { DeviceInfoFiles, DialectFiles } from '../driver/dialects/index.ts';
import { createEventsApi, EventWriter, FailureEvents, withClaimEvents, withPodEvents } from '../driver/events/index.ts';
import {
  endEarlierBoots,
  InactiveClaims,
  ObservedVfs,
  OrphanedFiles,
  Reconciler,
  readBootId,
  UnrestoredVfs,
} from '../driver/recovery/index.ts';
import {
  Attachments,
  CniAttacher,
  CniCleanUp,
  createSandboxSide,
  KernelNetworks,
  type SandboxRegistry,
  toDeviceStatuses,
} from '../driver/sandbox/index.ts';
import { ClaimLocks, Store } from '../driver/state/index.ts';
import { ClaimStatusWriter, createClaimStatusApi, withClaimStatus } from '../framework/claimstatus/index.ts';
import { isPodWanted, KubeClient, openApiAccess, ResourceApi } from '../framework/kube/index.ts';
import { startKubeletPlugin } from '../framework/kubeletplugin/index.ts';
import { CdiSpecs, type ClaimIdentity, ClaimMetadata, layouts } from '../framework/metadata/index.ts';
import { createSliceApi, dropsTaints, SlicePublisher } from '../framework/resourceslice/index.ts';
import { systemClock } from '../lib/clock.ts';
import { explain } from '../lib/errors.ts';
import type { Logger } from '../lib/logger.ts';
import { createOneByOne } from '../lib/one-by-one.ts';
import { CniRunner } from '../node/cni/index.ts';
import { NetworkWatch, parseCidr } from '../node/netlink/index.ts';
import { layoutDirectories } from './layout-directories.ts';
import {
  InstanceToken,
  type MetricSources,
  Operations,
  observeFiles,
  observeHandlers,
  observePlugin,
} from './ops/index.ts';
import { labelDirectories } from './selinux.ts';
import type { Settings } from './settings.ts';
import { openStartGate } from './start-gate.ts';
import { checkWritableDirectories, driverDirectories } from './writable-directories.ts';

/** The running driver. Disposing stops it; prepared claims stay prepared. */
export interface App extends AsyncDisposable {
  /** Waits until the runtime delivers pod events. @throws ConnectionClosedError if the driver stops first */
  whenConnected(): Promise<void>;
}

/**
 * Builds and starts everything: the only place where real clocks, sockets and clients are created. The order matters:
 * sandboxes of containers that wait are served before the plugin connects to the runtime, which may take long.
 * @throws NetdraError of the part that cannot start
 */
export async function startApp(settings: Settings, logger: Logger): Promise<App> {
  const clock = systemClock;
  const driver = settings.driverName;
  const dataDir = join(settings.kubeletPluginsDir, driver);
  const stateDir = settings.stateDir ?? dataDir;
  const access = await openApiAccess(settings.kubeconfig);
  checkWritableDirectories(driverDirectories(settings));
  const layoutDirs = await layoutDirectories(settings, dataDir);
  checkWritableDirectories(layoutDirs);
  labelDirectories(
    dataDir,
    layoutDirs.map(({ path }) => path),
    logger,
  );
  await using stack = new AsyncDisposableStack();
  const ops = stack.use(
    await Operations.start({
      driver,
      version: packageInfo.version,
      metadataEnabled: settings.enableDeviceMetadata,
      clock,
      logger,
      waitForAddress: settings.podUid !== undefined,
      ...(settings.podUid === undefined ? {} : { token: InstanceToken.open(join(stateDir, 'instance-token')) }),
      ...(settings.httpAddress === undefined ? {} : { address: settings.httpAddress }),
      ...(settings.httpTlsDir === undefined ? {} : { tlsDir: settings.httpTlsDir }),
    }),
  );
  const kube = stack.use(new KubeClient(access, { clock, userAgent: 'netdra' }));
  const resources = new ResourceApi(kube);

  const bootId = await readBootId(settings.bootIdPath);
  const store = stack.use(new Store(join(stateDir, 'state.db'), { bootId }));
  const gate = await openStartGate(settings, { kube, dataDir, logger });
  // Until it exists, this instance has served no sandbox, and serves all of them once it does.
  let sandboxes: SandboxRegistry | undefined;
  const metadata = new ClaimMetadata({
    driver,
    dataDir,
    cdiDir: settings.cdiDir,
    layouts: settings.metadataLayouts.map((name) => layouts[name]),
    // Claims that already have metadata keep it, so the object is always built.
    enabled: settings.enableDeviceMetadata,
    attributesOf: ({ pool, name }) => {
      const device = pool === settings.nodeName ? devices.find(name) : undefined;
      return device && devices.attributesOf(device.pciAddress);
    },
    bootId,
    onRecovered: ({ namespace, name, uid }, err) => {
      logger.warn({ claim: `${namespace}/${name}`, claimUid: uid, err }, 'damaged record of a claim is written anew');
    },
    onPending: (claim) => sandboxes?.requeuePods(podUidsOf(claim)),
    later: createOneByOne(),
    ...(gate.hook === undefined ? {} : { gate: gate.hook }),
    attributesDir: settings.attributesDir,
    downwardApiDir: settings.downwardApiDir,
  });
  // Must run before anything reads the VF snapshots of an earlier boot.
  await endEarlierBoots({ store, withdraw: (claim) => metadata.withdraw(claim), logger });
  const networks = stack.use(new KernelNetworks({ procSysDir: settings.procSysDir }));
  const { connection: host, ethtool } = networks.host;
  const devices = stack.use(
    await openDevices(settings, {
      driver,
      host,
      ethtool,
      stateDir,
      logger,
      clock,
      held: () => heldDevices(store.claims()),
      unrestored: () => store.unrestored(),
      watchHost: (onChange) => NetworkWatch.openHost(onChange),
      ...policyPathOf(settings),
    }),
  );
  const locks = stack.use(new ClaimLocks(join(stateDir, 'claims.lock'), clock));
  const runner = stack.use(
    new CniRunner({ binDirs: settings.cniBinDirs, cacheDir: join(stateDir, 'cni'), clock, logger }),
  );
  const cni = new CniAttacher({ runner, clock, logger });
  const cniCleanUp = stack.use(new CniCleanUp({ runner, store, clock, logger }));
  const attachments = new Attachments({ networks, vfs: devices.vfs, cni, store, clock });

  const { nodeName } = settings;
  const publisher = stack.use(
    new SlicePublisher(createSliceApi(kube, resources, { driver, nodeName }), {
      driver,
      nodeName,
      clock,
      logger,
      onError: (error) => {
        ops.setPublished(explain(error));
        if (dropsTaints(error)) devices.withdrawHung();
      },
      onSynced: () => ops.setPublished(),
    }),
  );
  const eventWriter = stack.use(
    new EventWriter(createEventsApi(kube), { controller: driver, instance: nodeName, clock, logger }),
  );
  const events = new FailureEvents(eventWriter);
  const podUidsOf = ({ uid }: ClaimIdentity) => store.claim(uid)?.podUids ?? [];
  const status = stack.use(
    new ClaimStatusWriter(createClaimStatusApi(resources), {
      driver,
      clock,
      logger,
      onPersistentFailure: (claim, error) => events.statusNotWritten(claim, podUidsOf(claim), error),
    }),
  );
  const tellStatus = (claim: ClaimIdentity, isSettled = true, failure?: string) => {
    const stored = store.claim(claim.uid);
    if (stored?.state === 'prepared') status.set(claim, toDeviceStatuses(stored, failure), isSettled);
  };
  const deviceSpecs = new CdiSpecs({ dir: settings.cdiDir, driver, class: 'device' });
  const dialectFiles = new DialectFiles({
    specs: new CdiSpecs({ dir: settings.cdiDir, driver, class: 'dialects' }),
    deviceInfo: new DeviceInfoFiles({
      dir: settings.deviceInfoDir,
      recordDir: join(stateDir, 'device-info'),
    }),
  });
  const classes = stack.use(new DeviceClasses({ resources, clock, logger }));
  const networkDriver = new Driver({
    driver,
    store,
    inventory: { pool: nodeName, find: (name) => devices.findUsable(name) },
    attachments,
    control: devices.vfs.control,
    attributesOf: (pciAddress) => devices.attributesOf(pciAddress),
    deviceSpecs,
    dialectFiles,
    networkAttachments: createKubeNetworkAttachmentReader(kube),
    namespaces: createKubeNamespaceReader(kube),
    cni: {
      uses: settings.cniUses,
      allowedPlugins: settings.cniAllowedPlugins,
      definitionNamespaces: settings.cniDefinitionNamespaces,
    },
    allocations: new AllocationCheck({ driver, classes }),
    openClaimFields: settings.openClaimFields,
    nodeNetworks: async () => {
      const addresses = await host.reachableAddresses();
      return addresses.filter(({ scope }) => scope === 'global').map(({ cidr }) => parseCidr(cidr));
    },
    locks,
    logger,
  });
  const draDriver = withClaimStatus(networkDriver, status);
  const helper = stack.use(
    await startKubeletPlugin(withClaimEvents(observePlugin(draDriver, ops.metrics, clock), events), {
      driver,
      dataDir,
      registryDir: settings.kubeletRegistryDir,
      podUid: settings.podUid,
      health: true,
      // The driver itself serializes access to whatever two claims could share.
      serialize: false,
      claims: resources,
      metadata,
      clock,
      logger,
      // The kubelet deletes our slices while the driver is unavailable.
      onRegistration: (registration) => {
        ops.setConnected('kubelet', registration.registered ? undefined : `refused: ${registration.error}`);
        if (registration.registered) publisher.recheck();
      },
    }),
  );
  const { hooks, registry, deletedPods, waitingSandboxes } = createSandboxSide({
    driver,
    store,
    locks,
    attachments,
    networks,
    files: observeFiles(helper, ops.metrics, clock),
    attributesOf: (pciAddress) => devices.attributesOf(pciAddress),
    assure: (claim, device) => networkDriver.assure(claim, device),
    metadata,
    isWanted: (pod, signal) => isPodWanted(kube, pod, signal),
    isFilePlace: (path) => metadata.isFilePlace(path),
    isFileOf: (claim, path) => metadata.isFileOf(claim, path),
    isGateOf: (claim, args) => metadata.isGateOf(claim, args),
    runsHooks: gate.runsHooks,
    liveUpdates: settings.liveUpdates,
    onWritten: tellStatus,
    onFailure: (claim, reason) => {
      tellStatus(claim, true, reason);
      events.notAttached(claim, podUidsOf(claim), reason);
    },
    onFlapping: (claim) => events.flapping(claim, podUidsOf(claim)),
    onSynchronized: () => reconciler.nudge(),
    onOtherPod: () => reconciler.nudge(),
    clock,
    logger,
  });
  sandboxes = stack.use(registry);
  stack.use(deletedPods);
  stack.use(waitingSandboxes);
  const plugin = stack.use(
    createPlugin({
      name: settings.nriPluginName,
      index: settings.nriPluginIndex,
      socketPath: settings.nriSocket,
      env: process.env,
      handlers: {
        ...observeHandlers(withPodEvents(hooks, events), ops.metrics, clock),
        connected: () => ops.setConnected('nri'),
        disconnected: (error) => {
          hooks.disconnected();
          ops.setConnected('nri', error === undefined ? 'closed' : explain(error));
        },
      },
      logger,
    }),
  );
  const metadataSpecs = new CdiSpecs({ dir: settings.cdiDir, driver, class: 'metadata' });
  const inactive = new InactiveClaims({
    driver,
    pool: nodeName,
    store,
    sandboxes: registry,
    claims: resources,
    metadata,
    helper,
    // The next pod may already exist.
    onHandedOver: () => reconciler.nudge(),
    clock,
    logger,
  });
  const orphans = new OrphanedFiles({
    store,
    metadata,
    specs: [deviceSpecs, metadataSpecs, dialectFiles],
    helper,
    logger,
  });
  const unrestored = new UnrestoredVfs({ store, attachments, control: devices.vfs.control, locks, logger });
  const observed = new ObservedVfs({ store, sandboxes: registry, attachments, locks, clock, logger });
  const reconciler: Reconciler = stack.use(
    new Reconciler({
      tasks: [
        { name: 'sandboxes', run: async () => registry.requeueAll() },
        { name: 'VFs to restore', run: (signal) => unrestored.sweep(signal) },
        { name: 'VFs', run: (signal) => devices.recreateLost(signal) },
        { name: 'observed VFs', run: (signal) => observed.sweep(signal) },
        { name: 'claims', run: (signal) => inactive.sweep(signal) },
        { name: 'files', run: (signal) => orphans.sweep(signal) },
        { name: 'CNI attachments', run: (signal) => cniCleanUp.sweep(signal) },
      ],
      everyMs: settings.reconcileIntervalMs,
      clock,
      logger,
    }),
  );
  // The runtime registers us once every sandbox has answered it; one whose containers are waiting does not answer.
  await waitingSandboxes.serve();
  plugin.start();
  waitingSandboxes.start();
  cniCleanUp.start();
  reconciler.start();
  deletedPods.start();
  // Report the status that could not be written before the driver was stopped.
  for (const { identity, devices } of store.claims()) {
    if (devices.some(({ attachment }) => attachment?.networkData !== undefined)) tellStatus(identity);
  }
  // The pool is named after the node, so that its name is unique in the cluster.
  const publish = () => {
    // An empty list would withdraw all devices, and report those of claims as lost.
    if (!devices.isListed) return ops.setPublished(`devices cannot be listed: ${explain(devices.failure)}`);
    const offered = devices.offered();
    publisher.publish({ pools: { [nodeName]: { devices: offered } } });
    const names = offered.map(({ name }) => name);
    helper.setHealth(deviceHealth(nodeName, names, store.claims(), devices.hung()));
    events.devicesFound(nodeName, names, store.claims());
    events.devicesHung(nodeName, devices.hung());
  };
  publish();
  devices.watch(publish);
  ops.metrics.readFrom(metricSources(devices, store, metadata));
  logger.info({ driver, node: nodeName, devices: devices.offered().length }, 'driver started');
  const owned = stack.move();
  return {
    whenConnected: async () => void (await plugin.whenConnected()),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function metricSources(found: DeviceList, store: Store, metadata: ClaimMetadata): MetricSources {
  const devices = () => store.claims().flatMap((claim) => claim.devices);
  return {
    devicesOffered: () => found.offered().length,
    claimsByState: () => countBy(store.claims().map(({ state }) => state)),
    devicesAttached: () => devices().filter(({ attachment }) => attachment !== undefined).length,
    metadataFiles: () => metadata.countFiles(),
  };
}

function countBy(names: string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function policyPathOf({ inventoryPolicy }: Settings): { policyPath?: string } {
  return inventoryPolicy === undefined ? {} : { policyPath: inventoryPolicy };
}
