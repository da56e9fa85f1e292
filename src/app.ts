import { join } from 'node:path';
import { KubeConfig } from '@kubernetes/client-node';
import { createPlugin } from '../nri/index.ts';
import { systemClock } from './clock.ts';
import { CniRunner } from './cni/index.ts';
import { Driver, Store } from './driver/index.ts';
import { NetdraError } from './errors.ts';
import { KeyedMutex } from './keyed-mutex.ts';
import { createKubeClaimReader, startKubeletPlugin } from './kubeletplugin/index.ts';
import type { Logger } from './logger.ts';
import { CdiSpecs, ClaimMetadata, layouts } from './metadata/index.ts';
import { NetnsHandle, RtnlConnection } from './netlink/index.ts';
import { createKubeSliceApi, SlicePublisher } from './resourceslice/index.ts';
import { CniAttacher, type OnStep, SandboxHandler, VfMover } from './sandbox/index.ts';
import type { Settings } from './settings.ts';
import { openVfSource } from './vf-source.ts';

/** What tests put in the place of the real thing, or watch. */
export interface AppSeams {
  onStep?: OnStep;
}

/** The driver, running. Disposing stops it; what is prepared stays prepared. */
export interface App extends AsyncDisposable {
  /** Waits until the runtime delivers pod events. @throws ConnectionClosedError if the driver stops before */
  whenConnected(): Promise<void>;
}

/**
 * Builds and starts everything: the one place where real clocks, sockets and clients are made. The order matters: the
 * hook can serve pods before the kubelet can prepare claims for them.
 * @throws NetdraError of whichever part cannot start
 */
export async function startApp(settings: Settings, logger: Logger, seams: AppSeams = {}): Promise<App> {
  const clock = systemClock;
  const onStep = seams.onStep ?? (() => undefined);
  const driver = settings.driverName;
  const dataDir = join(settings.kubeletPluginsDir, driver);
  const stateDir = settings.stateDir ?? dataDir;
  const config = loadKubeConfig(settings.kubeconfig);
  await using stack = new AsyncDisposableStack();

  const store = stack.use(new Store(join(stateDir, 'state.db')));
  const host = stack.use(RtnlConnection.open());
  const hostNetns = stack.use(NetnsHandle.open('/proc/self/ns/net'));
  const vfs = stack.use(await openVfSource(settings, { host, stateDir, logger, clock, ...policyPathOf(settings) }));
  const claimMutex = new KeyedMutex();
  const runner = stack.use(
    new CniRunner({ binDirs: settings.cniBinDirs, cacheDir: join(stateDir, 'cni'), clock, logger }),
  );
  const cni = new CniAttacher(runner);
  const mover = new VfMover({ host, hostNetns, vfs, cni, store, clock, onStep });
  const metadata = new ClaimMetadata({
    driver,
    dataDir,
    cdiDir: settings.cdiDir,
    layouts: settings.metadataLayouts.map((name) => layouts[name]),
  });

  const publisher = stack.use(
    new SlicePublisher(createKubeSliceApi(config), { driver, nodeName: settings.nodeName, clock, logger }),
  );
  const helper = stack.use(
    await startKubeletPlugin(
      new Driver({
        driver,
        store,
        inventory: { find: (pool, name) => (pool === settings.nodeName ? vfs.find(name) : undefined) },
        carrier: mover,
        control: vfs.control,
        deviceSpecs: new CdiSpecs({ dir: settings.cdiDir, driver, class: 'vfio' }),
        openClaimFields: settings.openClaimFields,
        claimMutex,
      }),
      {
        driver,
        dataDir,
        registryDir: settings.kubeletRegistryDir,
        claims: createKubeClaimReader(config),
        ...(settings.enableDeviceMetadata ? { metadata } : {}),
        clock,
        logger,
        // The kubelet deletes our slices while we are away.
        onRegistration: ({ registered }) => registered && publisher.recheck(),
      },
    ),
  );
  const handler = stack.use(
    new SandboxHandler({
      driver,
      store,
      mover,
      ...(settings.enableDeviceMetadata ? { updater: helper } : {}),
      withdraw: (claim) => metadata.withdraw(claim),
      attributesOf: (pciAddress) => vfs.attributesOf(pciAddress),
      claimMutex,
      hookFailure: settings.hookFailure,
      clock,
      logger,
      onStep,
    }),
  );
  const plugin = stack.use(
    createPlugin({
      name: settings.nriPluginName,
      index: settings.nriPluginIndex,
      socketPath: settings.nriSocket,
      env: process.env,
      handlers: {
        configure: (runtime) => handler.configure(runtime),
        synchronize: (pods) => handler.synchronize(pods),
        runPodSandbox: (pod, context) => handler.runPodSandbox(pod, context),
        stopPodSandbox: (pod, context) => handler.stopPodSandbox(pod, context),
        removePodSandbox: (pod, context) => handler.removePodSandbox(pod, context),
      },
      logger,
    }),
  );
  plugin.start();
  const offered = vfs.offered();
  publisher.publish(offered);
  vfs.watch(
    (pciAddress) => store.holderOf(pciAddress) !== undefined,
    () => publisher.publish(vfs.offered()),
  );
  logger.info({ driver, node: settings.nodeName, devices: offered.length }, 'driver started');
  const owned = stack.move();
  return {
    whenConnected: async () => void (await plugin.whenConnected()),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function policyPathOf({ inventoryPolicy }: Settings): { policyPath?: string } {
  return inventoryPolicy === undefined ? {} : { policyPath: inventoryPolicy };
}

function loadKubeConfig(path: string | undefined): KubeConfig {
  const config = new KubeConfig();
  if (path === undefined) {
    config.loadFromCluster();
    return config;
  }
  try {
    config.loadFromFile(path);
    return config;
  } catch (cause) {
    throw new NetdraError('kubeconfig-unusable', `cannot load kubeconfig ${path}`, { cause, path });
  }
}
