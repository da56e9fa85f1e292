import { join } from 'node:path';

/** The flags from which the directories of an instance follow. */
interface DirectorySettings {
  driverName: string;
  kubeletPluginsDir: string;
  stateDir?: string | undefined;
}

/** The driver's directory below the kubelet's `plugins`, and its state directory. */
export function driverDirs({ driverName, kubeletPluginsDir, stateDir }: DirectorySettings) {
  const dataDir = join(kubeletPluginsDir, driverName);
  return { dataDir, stateDir: stateDir ?? dataDir };
}

/** The driver's database. */
export function storePath(stateDir: string): string {
  return join(stateDir, 'state.db');
}
