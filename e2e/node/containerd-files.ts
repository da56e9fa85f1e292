import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError, run } from '../../scripts/packages/run.ts';
import type { ContainerdOptions } from './containerd.ts';
import { type ContainerdSettings, formatContainerdConfig } from './containerd-config.ts';
import { pauseImage } from './images.ts';
import { formatConflist, type PodNetwork, readNoNetworkConflist } from './pod-network.ts';
import type { NodeTools } from './tools.ts';

/** Creates the folders and files that containerd needs to start. @returns its configuration */
export function layOutContainerd(
  options: ContainerdOptions,
  tools: NodeTools,
  network: PodNetwork,
): ContainerdSettings {
  const { dir } = options;
  const noNetworkConfDir = join(dir, 'cni', 'no-network.d');
  const settings: ContainerdSettings = {
    rootDir: join(dir, 'root'),
    stateDir: join(dir, 'state'),
    socketPath: join(dir, 'containerd.sock'),
    optDir: join(dir, 'opt'),
    runc: tools.runc,
    snapshotter: 'overlayfs',
    sandboxImage: pauseImage,
    cniBinDir: tools.cniBinDir,
    cniConfDir: join(dir, 'cni', 'net.d'),
    noNetworkConfDir,
    cdiSpecDirs: options.cdiSpecDirs ?? [join(dir, 'cdi')],
    nri: {
      socketPath: options.nriSocketPath ?? join(dir, 'nri', 'nri.sock'),
      pluginDir: join(dir, 'nri', 'plugins'),
      pluginConfigDir: join(dir, 'nri', 'conf.d'),
      registrationTimeoutMs: options.registrationTimeoutMs ?? 5_000,
      // Not the runtime's default of 2 s: on a machine busy with other tests, milliseconds of work can take a second.
      requestTimeoutMs: options.requestTimeoutMs ?? 5_000,
    },
  };
  const { rootDir, cniConfDir, cdiSpecDirs, nri } = settings;
  for (const folder of [rootDir, cniConfDir, noNetworkConfDir, nri.pluginDir, nri.pluginConfigDir, ...cdiSpecDirs]) {
    mkdirSync(folder, { recursive: true });
  }
  settings.snapshotter = canOverlay(rootDir) ? 'overlayfs' : 'native';
  writeFileSync(join(dir, 'config.toml'), formatContainerdConfig(options.version, settings));
  writeFileSync(join(cniConfDir, '10-netdra.conflist'), formatConflist(network, join(dir, 'cni', 'leases')));
  writeFileSync(join(noNetworkConfDir, '10-no-default-network.conflist'), readNoNetworkConflist());
  return settings;
}

/** A file system that is itself an overlay, as in many containers, cannot hold another one. */
function canOverlay(dir: string): boolean {
  const [lower, upper, work, target] = ['lower', 'upper', 'work', 'target'].map((name) => join(dir, 'probe', name));
  try {
    for (const folder of [lower!, upper!, work!, target!]) mkdirSync(folder, { recursive: true });
    run('mount', ['-t', 'overlay', '-o', `lowerdir=${lower},upperdir=${upper},workdir=${work}`, 'probe', target!]);
    run('umount', [target!]);
    return true;
  } catch (error) {
    if (error instanceof CommandError) return false;
    throw error;
  } finally {
    rmSync(join(dir, 'probe'), { recursive: true, force: true });
  }
}
