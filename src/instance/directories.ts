import { join } from 'node:path';

/** Settings that determine the directories of an instance. */
interface DirectorySettings {
  driverName: string;
  kubeletPluginsDir: string;
  stateDir?: string | undefined;
}

/** Returns the driver's directory below the kubelet's `plugins`, and the driver's state directory. */
export function driverDirs({ driverName, kubeletPluginsDir, stateDir }: DirectorySettings) {
  const dataDir = join(kubeletPluginsDir, driverName);
  return { dataDir, stateDir: stateDir ?? dataDir };
}

/** Returns the path of the driver's database. */
export function storePath(stateDir: string): string {
  return join(stateDir, 'state.db');
}
