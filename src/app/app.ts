import { randomUUID } from 'node:crypto';
import packageInfo from '../../package.json' with { type: 'json' };
import { createNode, type NetworkNode } from '../driver/composition/create-node.ts';
import { openApiAccess } from '../framework/kube/index.ts';
import { formatExactJson } from '../framework/metadata/document/json-stream.ts';
import { driverDirs } from '../instance/directories.ts';
import { InstanceFile } from '../instance/instance-file.ts';
import type { Settings } from '../instance/settings.ts';
import { openStored } from '../instance/stored-claims.ts';
import { serveTools } from '../instance/tool-socket.ts';
import { readBootId } from '../lib/boot-id.ts';
import { systemClock } from '../lib/clock.ts';
import { NetdraError } from '../lib/errors.ts';
import type { Logger } from '../lib/logger.ts';
import type { LogRing } from './log-ring.ts';
import { openPorts } from './ports.ts';
import { labelDirectories } from './selinux.ts';
import { checkWritableDirectories, driverDirectories, layoutDirectories } from './writable-directories.ts';

/** The running driver. Disposing stops it; prepared claims stay prepared. */
export interface App extends AsyncDisposable {
  /** Waits until the runtime delivers pod events. @throws ConnectionClosedError if the driver stops first */
  whenConnected(): Promise<void>;
}

/**
 * Returns the directories that metadata layouts need. Opens the store only for reading, since the driver may still refuse to
 * start.
 */
async function layoutsToWrite(settings: Settings, dirs: { dataDir: string; stateDir: string }) {
  using stored = openStored(dirs);
  return await layoutDirectories(settings, dirs.dataDir, stored.records);
}

/**
 * Starts the driver on this machine. The order matters: sandboxes whose containers wait are served before the plugin
 * connects to the runtime, which may take long.
 * @throws NetdraError of the part that cannot start
 */
export async function startApp(settings: Settings, { logger, ring }: { logger: Logger; ring: LogRing }): Promise<App> {
  const dirs = driverDirs(settings);
  const { dataDir } = dirs;
  const { cniUses: uses, cniAllowedPlugins: allowedPlugins, cniDefinitionNamespaces: definitionNamespaces } = settings;
  const cni = { uses, allowedPlugins, definitionNamespaces };
  const node = { ...settings, ...dirs, cni, version: packageInfo.version };
  await using stack = new AsyncDisposableStack();
  const access = await openApiAccess(settings.kubeconfig);
  checkWritableDirectories(driverDirectories(settings));
  const layoutDirs = await layoutsToWrite(settings, node);
  checkWritableDirectories(layoutDirs);
  const layoutPaths = layoutDirs.map(({ path }) => path);
  labelDirectories(dataDir, layoutPaths, logger);
  let driver: NetworkNode | undefined;
  const inventory = () => {
    if (driver !== undefined) return formatExactJson(driver.inventory());
    throw new NetdraError('devices-unlisted', 'the driver has not listed the devices yet', { retriable: true });
  };
  const answers = { inventory, log: () => ring.text() };
  const bootId = readBootId(settings.bootIdPath);
  const facts = new InstanceFile(dataDir, { settings: node, bootId, logger });
  const instance = randomUUID().slice(0, 8);
  stack.use(
    await serveTools(dataDir, answers, { instance, clock: systemClock, logger, onRegained: () => facts.regain() }),
  );
  const ports = await openPorts(node, { access, stack, logger, bootId, reported: (state) => facts.write(state) });
  driver = stack.use(await createNode(ports, node));
  await driver.start();
  const owned = stack.move();
  const { whenConnected } = driver;
  return { whenConnected, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}
