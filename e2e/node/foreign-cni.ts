import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isProgram, pathFolders } from '../../scripts/packages/host-programs.ts';

/**
 * Finds a CNI plugin that is in no registry, as a program or a module: the user names the folder, by `--cni-bin DIR` or
 * `NETDRA_CNI_BIN_DIR`.
 * @returns its path, or why a case that needs it cannot run
 */
export function findForeignPlugin(name: string, env: NodeJS.ProcessEnv): { path: string } | { missing: string } {
  const path = pathFolders(env.NETDRA_CNI_BIN_DIR)
    .map((folder) => join(folder, name))
    .find(isProgram);
  return path === undefined ? { missing: `no program ${name}: name its folder with --cni-bin DIR` } : { path };
}

/** A second network for every pod, which Multus attaches as `net1`. */
export interface MultusNetwork {
  cniVersion: string;
  name: string;
  type: string;
  [field: string]: unknown;
}

/**
 * Creates a folder of CNI plugins in which `bridge`, the plugin of the pod network, is Multus with two delegates: the
 * bridge itself, and a second network. Multus contacts no API server this way.
 * @param dir an empty folder
 * @param pluginDir folder with the actual plugins
 */
export function layOutMultus(dir: string, multus: string, pluginDir: string, network: MultusNetwork): string {
  const binDir = join(dir, 'bin');
  mkdirSync(binDir);
  for (const name of readdirSync(pluginDir).filter((each) => each !== 'bridge')) {
    symlinkSync(join(pluginDir, name), join(binDir, name));
  }
  const config = JSON.stringify({
    cniVersion: '1.0.0',
    name: 'multus',
    type: 'multus',
    binDir: pluginDir,
    cniDir: join(dir, 'multus'),
    delegates: [],
  }).replace('[]', `[$(cat),${JSON.stringify(network)}]`);
  const script = `#!/bin/sh\nexec ${multus} <<CONFIG\n${config}\nCONFIG\n`;
  writeFileSync(join(binDir, 'bridge'), script, { mode: 0o755 });
  return binDir;
}
