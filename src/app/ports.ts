import { join } from 'node:path';
import { createPlugin, type Plugin, type PluginOptions } from '../../nri/index.ts';
import type { NodePorts, NodeSettings } from '../driver/composition/ports.ts';
import { StateError } from '../driver/model/index.ts';
import { Store } from '../driver/state/index.ts';
import { type ApiAccess, KubeClient } from '../framework/kube/index.ts';
import { startKubeletPlugin } from '../framework/kubeletplugin/index.ts';
import { storePath } from '../instance/directories.ts';
import type { Settings } from '../instance/settings.ts';
import { makeStateDir } from '../instance/stored-claims.ts';
import { Backlog } from '../lib/backlog.ts';
import { systemClock as clock } from '../lib/clock.ts';
import { CloseWatch } from '../lib/close-watch.ts';
import { defined } from '../lib/defined.ts';
import { FileMutex } from '../lib/file-mutex.ts';
import type { Logger } from '../lib/logger.ts';
import { textFiles } from '../lib/text-files.ts';
import { CniRunner } from '../node/cni/index.ts';
import { DevicePlugins, kubeletCheckpoint } from '../node/inventory/index.ts';
import { KernelNetworks, NetworkWatch } from '../node/netlink/index.ts';
import { readNearNodes, readNumaNodes } from '../node/numa/index.ts';
import { InstanceToken, Operations, observerOf, SuccessorReport } from './ops/index.ts';
import { openStartGate } from './start-gate.ts';

/** Sources of the driver's ports, and the stack that closes the ports. A port is an interface of the driver to the outside. */
interface PortsOptions {
  access: ApiAccess;
  /** Stack for all objects that must be closed at the end. */
  stack: AsyncDisposableStack;
  logger: Logger;
  bootId: string;
  /** Callback as in `NodeObserver`. */
  reported: NodePorts['observer']['reported'];
}

/**
 * Opens the driver's connections to this machine, the runtime, the kubelet and the API server. Only this function creates real
 * clocks, sockets and clients.
 * @throws NetdraError of the connection that cannot be opened
 */
export async function openPorts(
  settings: Settings & NodeSettings,
  { access, stack, logger, bootId, reported }: PortsOptions,
): Promise<NodePorts> {
  const { stateDir, dataDir, cniBinDirs: binDirs } = settings;
  const ops = stack.use(await startOperations(settings, logger));
  const kube = stack.use(new KubeClient(access, { clock, userAgent: 'netdra' }));
  makeStateDir(stateDir);
  const store = stack.use(new Store(storePath(stateDir), { bootId }));
  const gate = await openStartGate(settings, { kube, dataDir, logger });
  const networks = stack.use(new KernelNetworks({ procSysDir: settings.procSysDir }));
  const locks = stack.use(new FileMutex(join(stateDir, 'claims.lock'), new CloseWatch(clock), StateError));
  const removals = stack.use(new Backlog());
  return {
    clock,
    now: () => new Date(),
    logger,
    random: Math.random,
    kube,
    kernel: {
      networks,
      watchHost: (onChange) => NetworkWatch.openHost(onChange),
      numaNodes: () => readNumaNodes(),
      nearNodes: (node) => readNearNodes(node),
      devicePlugins: new DevicePlugins(kubeletCheckpoint),
    },
    // If a removal fails, the next reconciliation finds the remains.
    disk: { bootId, store, files: textFiles, locks, gate, later: (task) => removals.add(task) },
    kubelet: {
      serve: (plugin, options) =>
        startKubeletPlugin(plugin, {
          ...options,
          registryDir: settings.kubeletRegistryDir,
          podUid: settings.podUid,
          clock,
          logger,
          health: true,
          // The driver itself serializes access to everything that two claims could share.
          serialize: false,
        }),
    },
    runtime: {
      connect: (handlers, decode) => createNriPlugin(settings, { handlers, decode, logger }),
    },
    cni: stack.use(new CniRunner({ binDirs, cacheDir: join(stateDir, 'cni'), clock, logger })),
    observer: { ...observerOf(ops, clock), reported },
  };
}

function createNriPlugin(settings: Settings, options: PluginOptions): Plugin {
  return createPlugin({
    name: settings.nriPluginName,
    index: settings.nriPluginIndex,
    socketPath: settings.nriSocket,
    env: process.env,
    // A pause of the event loop must not cost the connection. `failRequest` is not set: it would also refuse the end of a pod.
    failurePolicy: { keepConnected: true },
    ...options,
  });
}

async function startOperations(settings: Settings & NodeSettings, logger: Logger): Promise<Operations> {
  const { podUid, stateDir, httpAddress, httpTlsDir, revision } = settings;
  return await Operations.start({
    driver: settings.driverName,
    version: settings.version,
    metadataEnabled: settings.enableDeviceMetadata,
    clock,
    logger,
    waitForAddress: podUid !== undefined,
    ...(podUid === undefined
      ? {}
      : {
          token: InstanceToken.open(join(stateDir, 'instance-token')),
          successor: new SuccessorReport(join(stateDir, 'successor.json')),
        }),
    ...defined({ address: httpAddress, tlsDir: httpTlsDir, revision }),
  });
}
