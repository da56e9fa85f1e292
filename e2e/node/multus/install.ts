import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * Creates a folder of CNI plugins in which `bridge`, the plugin of the pod network, is a stand-in of Multus that takes the devices
 * of the pod's networks from its claims.
 * @param dir an empty folder
 * @param pluginDir folder with the actual plugins
 */
export function installMultusStandIn(
  dir: string,
  pluginDir: string,
): { binDir: string; connect(server: string): void } {
  const binDir = join(dir, 'bin');
  mkdirSync(binDir);
  for (const name of readdirSync(pluginDir).filter((each) => each !== 'bridge')) {
    symlinkSync(join(pluginDir, name), join(binDir, name));
  }
  const settings = join(dir, 'settings.json');
  const program = fileURLToPath(new URL('plugin.ts', import.meta.url));
  writeFileSync(join(binDir, 'bridge'), `#!/bin/sh\nexec ${process.execPath} ${program} ${settings}\n`, {
    mode: 0o755,
  });
  const connect = (server: string) =>
    writeFileSync(settings, JSON.stringify({ server, pluginDir, cacheDir: join(dir, 'cache') }));
  return { binDir, connect };
}
