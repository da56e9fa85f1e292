import packageInfo from '../../package.json' with { type: 'json' };
import { createNode, type NetworkNode } from '../driver/create.ts';
import type { NodePorts } from '../driver/ports.ts';
import { openApiAccess } from '../framework/kube/index.ts';
import type { Logger } from '../lib/logger.ts';
import { recordIncidents } from './incidents/record-incidents.ts';
import { openPorts } from './ports.ts';
import { labelDirectories } from './selinux.ts';
import type { Settings } from './settings.ts';
import { openStored } from './tools/stored-claims.ts';
import { checkWritableDirectories, driverDirectories, layoutDirectories } from './writable-directories.ts';

/** The running driver. Disposing stops it; prepared claims stay prepared. */
export type App = Pick<NetworkNode, 'whenConnected'> & AsyncDisposable;

/** Read before the store is opened for writing: the driver may not be able to start here. */
async function layoutsToWrite(settings: Settings, dirs: { dataDir: string; stateDir: string }) {
  using stored = openStored(dirs);
  return await layoutDirectories(settings, dirs.dataDir, stored.records);
}

/**
 * Starts the driver on this machine. The order matters: sandboxes of containers that wait are served before the plugin
 * connects to the runtime, which may take long.
 * @param change of the ports, for experiments with a faulty driver
 * @throws NetdraError of the part that cannot start
 */
export async function startApp(
  settings: Settings,
  logger: Logger,
  change = (ports: NodePorts): NodePorts => ports,
): Promise<App> {
  const dataDir = `${settings.kubeletPluginsDir}/${settings.driverName}`;
  const { cniUses: uses, cniAllowedPlugins: allowedPlugins, cniDefinitionNamespaces: definitionNamespaces } = settings;
  const cni = { uses, allowedPlugins, definitionNamespaces };
  const node = { ...settings, dataDir, stateDir: settings.stateDir ?? dataDir, cni, version: packageInfo.version };
  await using stack = new AsyncDisposableStack();
  const access = await openApiAccess(settings.kubeconfig);
  checkWritableDirectories(driverDirectories(settings));
  const layoutDirs = await layoutsToWrite(settings, node);
  checkWritableDirectories(layoutDirs);
  const layoutPaths = layoutDirs.map(({ path }) => path);
  labelDirectories(dataDir, layoutPaths, logger);
  const opened = await openPorts(node, { access, stack, logger });
  const ports = settings.recordIncidents ? recordIncidents(opened, node, stack) : opened;
  const driver = stack.use(await createNode(change(ports), node));
  await driver.start();
  const owned = stack.move();
  return { whenConnected: () => driver.whenConnected(), [Symbol.asyncDispose]: () => owned.disposeAsync() };
}
